"""Given jobs that crash their process, then the others go on, and dead letters say how it ended.

With an executor, one worker, and a broker, all as real processes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration import crashing_jobs as jobs
from tests.integration.executing import Stage, stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.job import (
    JobCompleted,
    JobDead,
    JobRecovered,
    JobReleased,
    JobStarted,
)
from penstock.events.worker import WorkerCrashLooping, WorkerReady, WorkerStopped
from penstock.jobs import Client
from penstock.jobs.client import JobView
from penstock.jobs.lifecycle import State


def client(host: Stage) -> Client:
    return Client(host.bus, prefix=host.settings.prefix)


def of(view: JobView, kind: type[Any]) -> list[tuple[int, Any]]:
    return [(sequence, event) for sequence, event in view.events if isinstance(event, kind)]


async def test_crashing_jobs_cost_the_others_nothing(
    settings: MakeSettings, tmp_path: Path
) -> None:
    """No running job's claim lapses here, and none is released because it takes long.

    What was on its way to a worker that crashed comes again when its claim lapses.
    """
    tables = {
        "modules": [jobs.__name__],
        "claim_seconds": 15,
        "claim_ahead_seconds": 1,
        "max_lost_workers": 3,
    }
    async with stage(settings, jobs=tables) as host:  # one for all: its start takes longest
        await host.command({"mail": 1})
        host.start()
        await host.seen(WorkerReady)
        await _good_jobs_do_not_wait_for_those_that_crash(host)
        await _a_job_that_may_be_tried_once_crashes_once(host)
        await _jobs_claimed_ahead_of_one_that_crashes_are_not_charged(host, tmp_path / "gate")


async def _good_jobs_do_not_wait_for_those_that_crash(host: Stage) -> None:
    dispatching = client(host)
    bad = await dispatching.dispatch_many([jobs.segfault() for _ in range(3)])
    good = await dispatching.dispatch_many([jobs.good(0.01) for _ in range(30)])

    ended = [await dispatching.wait(job_id, 60) for job_id in good]
    dead = [await dispatching.wait(job_id, 60) for job_id in bad]

    assert {view.state for view in ended} == {State.COMPLETED}
    assert {view.record.lost_workers for view in ended} == {0}, "none was taken along"
    assert {view.state for view in dead} == {State.DEAD}
    first_good = min(of(view, JobCompleted)[0][0] for view in ended)
    first_dead = min(of(view, JobDead)[0][0] for view in dead)
    assert first_good < first_dead, "the bad ones waited at the back of the line"
    assert host.of(WorkerCrashLooping) == []
    for view in dead:
        assert [event.due_at is None for _, event in of(view, JobRecovered)] == [True, False]
        assert view.error.kind == "poison"
        assert "lost its worker 3 times in a row; the last time: worker " in view.error.message
        assert view.error.message.endswith("was killed by signal 11 (SIGSEGV)")


async def _a_job_that_may_be_tried_once_crashes_once(host: Stage) -> None:
    dispatching = client(host)
    calls = [jobs.segfault_once(), jobs.leave(3), jobs.leave(0)]
    ids = [await dispatching.dispatch(call) for call in calls]

    views = [await dispatching.wait(job_id, 60) for job_id in ids]

    assert [len(of(view, JobStarted)) for view in views] == [1, 2, 2]
    assert [view.error.message.partition(" on ")[2] for view in views] == [
        f"{host.host} was killed by signal 11 (SIGSEGV)",
        f"{host.host} ended with exit code 3",
        f"{host.host} ended with exit code 0",
    ]
    for job_id in ids:
        letter = host.subjects.dead("mail", job_id)
        await eventually(lambda subject=letter: host.bus.last(host.subjects.dead_stream, subject))


async def _jobs_claimed_ahead_of_one_that_crashes_are_not_charged(host: Stage, gate: Path) -> None:
    dispatching = client(host)
    for _ in range(2):  # until the worker trusts them to be short
        for job_id in await dispatching.dispatch_many([jobs.good() for _ in range(50)]):
            await dispatching.wait(job_id, 30)
    bad, *others = await dispatching.dispatch_many(
        [jobs.wait_then_leave(str(gate)), *(jobs.good() for _ in range(20))]
    )
    await eventually(lambda: _started(host, [bad, *others]), what="some claimed ahead")
    gate.touch()  # noqa: ASYNC240 - a moment
    views = [await dispatching.wait(job_id, 30) for job_id in others]

    assert {view.record.lost_workers for view in views} == {0}
    assert all(not of(view, JobRecovered) for view in views)
    released = [event for view in views for _, event in of(view, JobReleased)]
    assert released
    assert all(f"waited there behind {bad}" in event.reason for event in released)
    assert bad in {stopped.job_id for stopped in host.of(WorkerStopped)}


async def _started(host: Stage, job_ids: list[str]) -> bool:
    views = [await client(host).job(job_id) for job_id in job_ids]
    return sum(view.state is State.RUNNING for view in views) > 1
