"""Stuck jobs on a real host: seen, taken from their worker, run elsewhere; live ones left alone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.integration import executor_jobs as jobs
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.envelope import new_id
from penstock.events.job import JobDead, JobRecovered, JobReleased, JobStarted
from penstock.events.recovering import RecoverAsked, Suspect
from penstock.events.worker import WorkerReady, WorkerStopped, WorkerStuck
from penstock.jobs import Client
from penstock.jobs.dead_letters.letter import Letter
from penstock.jobs.errors import NotFound
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.operations.recovering import recover_on_hosts

QUICK = {"silent_seconds": 2.0, "expected_seconds": 0.2, "looks": 2}
SHORT = {"modules": [jobs.__name__], "claim_seconds": 1, "cancel_grace_seconds": 0.2}


class Ward:
    """A host whose workers are watched closely, and a client."""

    def __init__(self, host: Stage, folder: Path) -> None:
        self.host = host
        self.client = Client(host.bus, prefix=host.settings.prefix)
        self.gate = folder / "gate"

    async def runs(self, job: Any) -> str:
        """Dispatches a job and waits for its function: a worker may return what it only claimed."""
        job_id = await self.client.dispatch(job(path=str(self.gate)))
        await self.reached(job_id, State.RUNNING)
        await eventually(self.gate.with_suffix(".begun").exists, 30, "the function")
        return job_id

    async def reached(self, job_id: str, state: State, starts: int = 1) -> JobView:
        async def there() -> JobView | None:
            view = await self.client.job(job_id)
            seen = [event for _, event in view.events if isinstance(event, JobStarted)]
            return view if view.state is state and len(seen) >= starts else None

        return await eventually(there, 30, f"job {state}")

    async def letter(self, job_id: str) -> Letter | None:
        """It follows the event; None before it does."""
        with suppress(NotFound):
            return await self.client.dead.get(job_id)
        return None

    async def ask(self, **fields: Any) -> list[Suspect]:
        asked = RecoverAsked(answer_to=new_id(), **{"threshold": 0.7, **fields})
        found, silent = await recover_on_hosts(self.host.bus, self.host.subjects, asked)
        assert not silent
        return found


def of(view: JobView, kind: type[Any]) -> list[Any]:
    return [event for _, event in view.events if isinstance(event, kind)]


async def ward(host: Stage, folder: Path, workers: int = 1) -> Ward:
    await host.command({"mail": workers})
    host.start()
    await host.seen(WorkerReady, workers)
    return Ward(host, folder)


@pytest.mark.parametrize("strategy", ["graceful", "checkpoint", "restart"])
async def test_a_stuck_job_is_taken_away_and_runs_again(
    settings: MakeSettings, tmp_path: Path, strategy: str
) -> None:
    async with stage(settings, jobs=SHORT, stuck={**QUICK, "strategy": strategy}) as host:
        there = await ward(host, tmp_path)
        job_id = await there.runs(jobs.silent)
        view = await there.reached(job_id, State.RUNNING, starts=2)
        there.gate.touch()
        [recovered] = of(view, JobRecovered)[:1]
        assert (recovered.strategy, recovered.from_checkpoint) == (strategy, strategy != "restart")
        assert "score 0.7" in recovered.reason
        stuck = host.of(WorkerStuck)[0]
        assert (stuck.job_id, stuck.queue, stuck.strategy) == (job_id, "mail", strategy)
        assert (stuck.heartbeat, stuck.run_time, stuck.process) == (1.0, 1.0, 0.5)
        assert (await there.client.wait(job_id, 30)).attempts == 1  # none was used up
        causes = [event.cause for event in host.of(WorkerStopped)]
        assert set(causes) == (set() if strategy == "graceful" else {"stuck"})


async def test_a_job_that_does_not_let_go_is_ended_with_its_worker(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with stage(settings, stuck=QUICK, jobs=SHORT) as host:
        there = await ward(host, tmp_path)
        job_id = await there.runs(jobs.deaf)
        await there.reached(job_id, State.RUNNING, starts=2)
        there.gate.touch()
        assert (await there.client.wait(job_id, 30)).state is State.COMPLETED
        assert await host.seen(WorkerStopped)


async def test_a_job_that_is_stuck_again_and_again_is_dead(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with stage(settings, stuck=QUICK, jobs={**SHORT, "max_lost_workers": 2}) as host:
        there = await ward(host, tmp_path)
        job_id = await there.runs(jobs.silent)
        view = await there.client.wait(job_id, 60)
        [dead] = of(view, JobDead)
        assert dead.error.kind == "poison"
        assert len(of(view, JobStarted)) == 2
        letter = await eventually(lambda: there.letter(job_id), 30, "in the dead letters")
        assert letter is not None
        assert letter.content.error == dead.error


async def test_a_job_that_tells_of_its_work_is_left_alone_however_long_it_takes(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with stage(settings, stuck={**QUICK, "looks": 3}, jobs=SHORT) as host:
        there = await ward(host, tmp_path, workers=2)
        lively, silent = await there.runs(jobs.lively), await there.runs(jobs.silent)
        await there.reached(silent, State.RUNNING, starts=2)  # the other one was long enough
        assert len(of(await there.client.job(lively), JobStarted)) == 1
        there.gate.touch()
        assert (await there.client.wait(lively, 30)).state is State.COMPLETED
        assert {event.job_id for event in host.of(WorkerStuck)} == {silent}


async def test_an_operator_sees_what_is_stuck_and_sets_it_going(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with stage(settings, jobs=SHORT, stuck={**QUICK, "strategy": "off"}) as host:
        there = await ward(host, tmp_path)
        job_id = await there.runs(jobs.silent)
        await host.seen(WorkerStuck)
        [seen] = await there.ask()
        assert (seen.job_id, seen.outcome, seen.host) == (job_id, "", host.host)
        assert seen.score > 0.7
        assert await there.ask(queue="other") == await there.ask(threshold=1.0) == []
        assert len(of(await there.client.job(job_id), JobStarted)) == 1

        await asyncio.gather(*(there.ask(strategy="restart", job_id=job_id) for _ in range(3)))
        view = await there.reached(job_id, State.RUNNING, starts=2)
        assert len(of(view, JobRecovered)) == 1
        there.gate.touch()
        assert (await there.client.wait(job_id, 30)).state is State.COMPLETED


async def test_a_job_cut_off_by_the_drain_deadline_loses_no_worker(
    settings: MakeSettings, tmp_path: Path
) -> None:
    async with stage(settings, host={"drain_seconds": 0.5, "orphan_grace_seconds": 2.0}) as host:
        there = await ward(host, tmp_path)
        job_id = await there.runs(jobs.silent)
        await host.command({"mail": 0})
        [stopped] = await host.seen(WorkerStopped)
        assert stopped.cause == "drain-deadline"
        view = await there.reached(job_id, State.WAITING)
        [released] = of(view, JobReleased)
        assert released.reason.endswith("did not end in time")
        await host.command({"mail": 1})
        there.gate.touch()
        assert (await there.client.wait(job_id, 30)).record.lost_workers == 0
