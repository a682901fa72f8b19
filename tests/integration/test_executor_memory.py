"""Jobs that use too much memory, in real workers: ended by these, or by their executor."""

from __future__ import annotations

from pathlib import Path

from tests.integration import executor_jobs as jobs
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings

from penstock.events.job import JobFailed
from penstock.events.worker import WorkerReady, WorkerStopped
from penstock.jobs import Client
from penstock.jobs.lifecycle import State

JOBS = {"modules": [jobs.__name__], "claim_seconds": 2, "cancel_grace_seconds": 0.5}
LIMIT, FAR_BEYOND = 700 << 20, 1000
POOLS = {"mail": {"limit_job_memory_bytes": LIMIT}}


async def one_worker(host: Stage) -> Client:
    await host.command({"mail": 1})
    host.start()
    await host.seen(WorkerReady)
    return Client(host.bus, prefix=host.settings.prefix)


async def test_the_executor_kills_one_whose_worker_cannot_look_at_itself(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with stage(settings, jobs=JOBS, pools=POOLS) as host:
        client = await one_worker(host)
        call = jobs.hoard_in_c(path=str(tmp_path / "runs"), megabytes=FAR_BEYOND)
        view = await client.wait(await client.dispatch(call), 40)
        assert view.state is State.DEAD
        assert "memory-limit" in view.error.message
        assert "limit_job_memory_bytes of its pool allows 700 MiB" in view.error.message
        [stopped, *_] = await host.seen(WorkerStopped)
        assert isinstance(stopped, WorkerStopped)
        assert stopped.cause == "memory-limit"
        await host.seen(WorkerReady, 2)


async def test_a_worker_ends_its_job_and_is_replaced_for_the_next_attempt(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with stage(settings, jobs=JOBS, pools=POOLS) as host:
        client = await one_worker(host)
        call = jobs.hoard(path=str(tmp_path / "runs"), megabytes=FAR_BEYOND)
        view = await client.wait(await client.dispatch(call), 40)
        failures = [event for _, event in view.events if isinstance(event, JobFailed)]
        assert [event.error.kind for event in failures] == ["memory-limit"] * 2
        assert min(event.peak_memory_bytes for event in failures) > LIMIT
        causes = [event.cause for event in await host.seen(WorkerStopped, 2)]
        # on busy cores a worker may not end within its grace, and the executor kills it
        assert set(causes) <= {"limit", "memory-limit"}
        pids = (tmp_path / "runs").read_text().split()
        assert len(pids) >= 2
        assert len(set(pids)) == len(pids)
