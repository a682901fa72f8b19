"""Given a worker process that runs a hundred jobs, then each keeps the promises that one job has.

With an executor, workers and a broker, all as real processes.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from tests.integration import slot_jobs as jobs
from tests.integration.crew import Diary
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.envelope import new_id
from penstock.events.job import JobCompleted, JobDead, JobRecovered, JobReleased, JobStarted
from penstock.events.recovering import RecoverAsked, Suspect
from penstock.events.worker import WorkerReady, WorkerStopped
from penstock.jobs import Client
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.operations.recovering import recover_on_hosts
from penstock.worker.running.ending import UNRESPONSIVE

SLOTS = 100


def client(host: Stage) -> Client:
    return Client(host.bus, prefix=host.settings.prefix)


def of(view: JobView, kind: type[Any]) -> list[Any]:
    return [event for _, event in view.events if isinstance(event, kind)]


class Crowd:
    """Many jobs in one process, half of them asynchronous, that wait at a gate."""

    def __init__(self, host: Stage, folder: Path, name: str) -> None:
        self.host, self._name = host, name
        self.diary, self._gate = Diary(folder / f"{name}-diary"), folder / f"{name}-gate"
        self.ids: list[str] = []

    async def come(self, count: int = SLOTS) -> None:
        """Dispatches them; returns when all run."""
        given = {"diary": self.diary.path, "gate": str(self._gate)}
        calls = [
            (jobs.wait_soon if number % 2 else jobs.wait)(name=f"{self._name}{number}", **given)
            for number in range(count)
        ]
        self.ids = await client(self.host).dispatch_many(calls)
        await self.began(count)

    async def began(self, count: int) -> None:
        await eventually(
            lambda: sum(self.diary.count("begun").values()) >= count, 30, f"{count} jobs that run"
        )

    def let_go(self) -> None:
        self._gate.touch()

    async def ended(self) -> list[JobView]:
        return [await client(self.host).wait(job_id, 60) for job_id in self.ids]

    @property
    def pids(self) -> set[int]:
        return {line.pid for line in self.diary.lines()}


async def test_a_hundred_jobs_in_one_process(settings: MakeSettings, tmp_path: Path) -> None:
    tables = {"modules": [jobs.__name__], "cancel_grace_seconds": 0.2, "max_lost_workers": 3}
    pools = {"mail": {"slots": SLOTS, "tries": 1}}
    stuck = {"silent_seconds": 0.5, "expected_seconds": 0.1, "strategy": "off"}
    async with stage(settings, jobs=tables, pools=pools, stuck=stuck) as host:  # starts take long
        await host.command({"mail": 1})
        host.start()
        await host.seen(WorkerReady)
        await _one_of_many_is_cancelled(host, tmp_path)
        await _one_of_many_that_is_stuck_is_taken_away_and_no_worker_ended(host, tmp_path)
        await _each_job_of_a_killed_worker_is_recovered_once(host, tmp_path)
        await _one_that_crashes_is_found_and_the_others_complete(host)
        await _one_that_hangs_has_its_process_replaced_after_the_others(host, tmp_path)
        await _a_worker_that_is_asked_to_end_finishes_what_runs(host, tmp_path)


async def _one_of_many_is_cancelled(host: Stage, folder: Path) -> None:
    crowd = Crowd(host, folder, "cancelled")
    await crowd.come()
    assert len(crowd.pids) == 1
    for number in (10, 11):
        await client(host).cancel(crowd.ids[number])
    crowd.let_go()
    views = await crowd.ended()
    states = [view.state for view in views]
    assert (states[10], states[11]) == (State.CANCELLED, State.CANCELLED)
    assert states.count(State.COMPLETED) == SLOTS - 2
    assert len(host.living()) == 1


async def _one_of_many_that_is_stuck_is_taken_away_and_no_worker_ended(
    host: Stage, folder: Path
) -> None:
    crowd = Crowd(host, folder, "stuck")
    await crowd.come(10)
    asked = RecoverAsked(
        answer_to=new_id(), threshold=0.7, job_id=crowd.ids[3], strategy="checkpoint"
    )

    async def recovered() -> list[Suspect]:
        suspects, _ = await recover_on_hosts(host.bus, host.subjects, asked)
        return suspects

    [suspect] = await eventually(recovered, 20, "a job that counts as stuck")
    assert (suspect.job_id, suspect.outcome) == (crowd.ids[3], "checkpoint")
    await crowd.began(11)
    crowd.let_go()
    views = await crowd.ended()
    assert {view.state for view in views} == {State.COMPLETED}
    assert [bool(of(view, JobRecovered)) for view in views] == [n == 3 for n in range(10)]
    assert len(crowd.pids) == 1


async def _each_job_of_a_killed_worker_is_recovered_once(host: Stage, folder: Path) -> None:
    crowd = Crowd(host, folder, "killed")
    await crowd.come()
    [pid] = crowd.pids
    os.kill(pid, signal.SIGKILL)
    await crowd.began(2 * SLOTS)  # all beside each other again: none has ended
    crowd.let_go()
    views = await crowd.ended()
    assert {view.state for view in views} == {State.COMPLETED}
    for view in views:
        [recovered] = of(view, JobRecovered)
        assert recovered.together == SLOTS
        assert (len(of(view, JobStarted)), len(of(view, JobCompleted))) == (2, 1)
        assert (view.record.lost_workers, view.record.lost_together) == (0, 1)
    assert set(crowd.diary.count("done").values()) == {1}
    assert len(crowd.pids) == 2


async def _one_that_crashes_is_found_and_the_others_complete(host: Stage) -> None:
    dispatching = client(host)
    good = await dispatching.dispatch_many([jobs.work_soon(1.0) for _ in range(SLOTS - 1)])
    bad = await dispatching.dispatch(jobs.crash())
    late = await dispatching.dispatch_many([jobs.work_soon() for _ in range(SLOTS)])
    view = await dispatching.wait(bad, 60)
    assert view.state is State.DEAD
    assert view.error.kind == "poison"
    losses = [event.together for event in of(view, JobRecovered)]
    assert losses[0] > 1, "it shared its first loss"
    assert losses[-1] == 1, "and was alone at last"
    assert sorted(losses[1:], reverse=True) == losses[1:], "each time with fewer suspects"
    assert len(of(view, JobDead)) == 1
    for job_id in (*good, *late):
        ended = await dispatching.wait(job_id, 60)
        assert ended.state is State.COMPLETED
        assert ended.record.lost_workers == 0, "none is charged with what another did"


async def _one_that_hangs_has_its_process_replaced_after_the_others(
    host: Stage, folder: Path
) -> None:
    crowd = Crowd(host, folder, "beside")
    await crowd.come(SLOTS - 1)
    hung = await client(host).dispatch(jobs.hang(crowd.diary.path, "hung"))
    await eventually(lambda: "shrugged" in crowd.diary.told("hung"), 20, "an interruption")
    before = len(host.of(WorkerStopped))
    crowd.let_go()
    assert {view.state for view in await crowd.ended()} == {State.COMPLETED}
    view = await client(host).wait(hung, 30)
    assert (view.state, view.error.kind) == (State.DEAD, "timeout")
    stopped = (await host.seen(WorkerStopped, before + 1))[before]
    assert stopped.exit_code == UNRESPONSIVE
    assert not any(of(each, JobRecovered) for each in await crowd.ended())


async def _a_worker_that_is_asked_to_end_finishes_what_runs(host: Stage, folder: Path) -> None:
    crowd = Crowd(host, folder, "drained")
    await crowd.come()
    [pid] = crowd.pids
    before = len(host.of(WorkerStopped))
    await host.command({"mail": 0})
    await host.pool("mail", planned=0, draining=1)
    crowd.let_go()
    views = await crowd.ended()
    assert {view.state for view in views} == {State.COMPLETED}
    assert not any(of(view, JobReleased) or of(view, JobRecovered) for view in views)
    stopped = (await host.seen(WorkerStopped, before + 1))[before]
    assert (stopped.pid, stopped.exit_code) == (pid, 0)
