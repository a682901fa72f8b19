"""C code that holds the interpreter: nobody in the worker can keep its claim, its executor does."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.integration import executor_jobs as jobs
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.worker import WorkerReady, WorkerStopped
from penstock.jobs import Client

JOBS = {"modules": [jobs.__name__], "claim_seconds": 1}


def runs(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


async def two_workers(host: Stage) -> Client:
    await host.command({"mail": 2})
    host.start()
    await host.seen(WorkerReady, 2)
    return Client(host.bus, prefix=host.settings.prefix)


async def test_a_job_that_computes_in_c_longer_than_its_claim_runs_once(
    settings: MakeSettings, tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    async with stage(settings, jobs=JOBS) as host:
        client = await two_workers(host)
        job_id = await client.dispatch(jobs.in_c(path=str(path), seconds=4.0))
        view = await client.wait(job_id, 30)
        assert (view.record.run_seconds or 0) > 2.0, "long enough to have lapsed"
        assert runs(path) == [view.result]
        assert [event.name for _, event in view.events] == [
            "JobDispatched", "JobStarted", "JobCompleted"
        ]  # fmt: skip


async def test_one_that_is_stopped_in_c_is_taken_over(
    settings: MakeSettings, tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    async with stage(settings, jobs=JOBS) as host:
        client = await two_workers(host)
        job_id = await client.dispatch(jobs.in_c(path=str(path), seconds=4.0))
        await eventually(lambda: runs(path), 15)
        os.kill(runs(path)[0], signal.SIGSTOP)
        await eventually(lambda: len(runs(path)) == 2, 10, "an heir")
        os.kill(runs(path)[0], signal.SIGCONT)
        view = await client.wait(job_id, 30)
        assert view.result == runs(path)[1]


async def test_one_that_is_killed_in_c_is_given_back(
    settings: MakeSettings, tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    async with stage(settings, jobs=JOBS) as host:
        client = await two_workers(host)
        job_id = await client.dispatch(jobs.in_c(path=str(path), seconds=2.0))
        await eventually(lambda: runs(path), 15)
        os.kill(runs(path)[0], signal.SIGKILL)
        await host.seen(WorkerStopped)
        assert (await client.wait(job_id, 30)).result == runs(path)[1]


async def test_the_death_of_a_stopped_worker_takes_nothing_from_its_heir(
    settings: MakeSettings, tmp_path: Path
) -> None:
    """Its executor gives back what it held, and that is not fenced."""
    path, gate = tmp_path / "runs", tmp_path / "gate"
    async with stage(settings, jobs=JOBS) as host:
        client = await two_workers(host)
        job_id = await client.dispatch(jobs.wait_at(path=str(path), gate=str(gate)))
        await eventually(lambda: runs(path), 15)
        os.kill(runs(path)[0], signal.SIGSTOP)
        await eventually(lambda: len(runs(path)) == 2, 10, "an heir")
        os.kill(runs(path)[0], signal.SIGKILL)
        await host.seen(WorkerReady, 3)
        idle = await client.dispatch(jobs.quick())
        await client.wait(idle, 10)
        gate.touch()
        assert (await client.wait(job_id, 10)).result == runs(path)[1]
        assert len(runs(path)) == 2


async def test_what_was_claimed_behind_it_runs_elsewhere_and_once(
    settings: MakeSettings, tmp_path: Path
) -> None:
    path = tmp_path / "runs"
    async with stage(settings, jobs=JOBS) as host:
        client = Client(host.bus, prefix=host.settings.prefix)
        calls = [jobs.in_c(path=str(path), seconds=seconds) for seconds in (4.0, 0.5, 0.5, 0.5)]
        ids = await client.dispatch_many(calls)
        await host.command({"mail": 1})
        host.start()
        await eventually(lambda: runs(path), 20)
        await host.command({"mail": 2})
        views = [await client.wait(each, 30) for each in ids]
        assert len(runs(path)) == len(ids)
        assert len({view.result for view in views}) == 2
