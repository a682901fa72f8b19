"""Middleware on real workers: what is limited stays limited, whoever dies, stops or is cut off."""

from __future__ import annotations

import random
import signal
import time

import pytest
from tests.integration.crew import Crew
from tests.integration.gated_jobs import (
    PER_SECOND,
    QUEUE,
    alone,
    by_two,
    difficult,
    forgiven,
    listed,
    needless,
    on_average,
    or_not,
    put_off_once,
    strictly,
    stuck_in_c,
    told_async,
    told_plain,
)
from tests.integration.guarded_jobs import Moment, moments, overlaps
from tests.waiting import eventually

from penstock.events.job import JobCancelled, JobCompleted, JobDead, JobRetrying
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.runtime.broker import Broker

TABLES = {
    "pools": {QUEUE: {"tries": 3}},
    "jobs": {
        "modules": ["tests.integration.gated_jobs"],
        "exclusive_lease_seconds": 1.5,
        "max_lost_workers": 50,
    },
}
gated = pytest.mark.parametrize("crew", [TABLES], indirect=True)


def path(crew: Crew) -> str:
    return str(crew.folder / "moments")


async def all_done(crew: Crew, ids: list[str], within: float = 40) -> list[JobView]:
    views = [await crew.ended(each, within) for each in ids]
    assert {view.state for view in views} == {State.COMPLETED}
    return views


async def dispatch_limited(crew: Crew, count: int) -> list[str]:
    calls = [strictly(path=path(crew), name=f"j{n}") for n in range(count)]
    return await crew.client.dispatch_many(calls)


def most_within(found: list[Moment], seconds: float) -> int:
    """The most starts that any stretch of this length holds."""
    at = sorted(moment.at for moment in found)
    return max(sum(start <= other < start + seconds for other in at) for start in at)


def most_at_once(found: list[Moment]) -> int:
    runs: dict[tuple[str, int], list[float]] = {}
    for moment in found:
        runs.setdefault((moment.name, moment.pid), []).append(moment.at)
    return max(
        sum(min(other) <= at <= max(other) for other in runs.values())
        for run in runs.values()
        for at in run
    )


# --- the author's own -----------------------------------------------------------------------------
@gated
async def test_the_first_is_outermost_around_plain_and_async_jobs(crew: Crew) -> None:
    crew.hire(QUEUE)
    plain = await crew.client.dispatch(told_plain())
    assert (await crew.ended(plain)).result == ["outside", "inside", "plain"]
    soon = await crew.client.dispatch(told_async())
    told = (await crew.ended(soon)).result
    assert told == ["inside-left", "outside-left", "inside", "outside", "async"]


@gated
async def test_one_may_suppress_an_error(crew: Crew) -> None:
    crew.hire(QUEUE)
    view = await crew.ended(await crew.client.dispatch(forgiven()))
    assert (view.state, view.result) == (State.COMPLETED, None)


@pytest.mark.parametrize(
    "crew",
    [{**TABLES, "pools": {QUEUE: {"middleware": ["tests.integration.gated_jobs:outside"]}}}],
    indirect=True,
)
async def test_that_of_a_pool_is_around_every_job(crew: Crew) -> None:
    crew.hire(QUEUE)
    soon = await crew.client.dispatch(told_async())
    told = (await crew.ended(soon)).result
    assert told == ["outside", "inside", "outside", "async"]


# --- rate limits ----------------------------------------------------------------------------------
@gated
async def test_a_sliding_window_is_never_exceeded(crew: Crew) -> None:
    for _ in range(3):
        crew.hire(QUEUE)
    ids = await crew.client.dispatch_many(
        [strictly(path=path(crew), name=f"j{n}") for n in range(45)]
    )
    began = time.monotonic()
    await all_done(crew, ids)
    took = time.monotonic() - began
    found = moments(path(crew))
    assert len(found) == 45
    assert most_within(found, 1.0) <= PER_SECOND
    assert took < 9, "a limit that lets less than half through"


@gated
async def test_each_key_has_a_bucket_of_its_own(crew: Crew) -> None:
    crew.hire(QUEUE), crew.hire(QUEUE)
    calls = [
        on_average(path=path(crew), name=f"j{n}", customer=customer)
        for n in range(60)
        for customer in ("a", "b")
    ]
    await all_done(crew, await crew.client.dispatch_many(calls))
    for customer in ("a", "b"):
        found = [m for m in moments(path(crew)) if m.name.startswith(f"{customer}.")]
        assert len(found) == 60
        # burst + rate x (window + life of a start)
        assert most_within(found, 1.0) <= 4 + 40 * 1.25
        assert most_within(found, 0.25) <= 4 + 40 * 0.5


@gated
async def test_killed_workers_do_not_loosen_a_limit(crew: Crew) -> None:
    for _ in range(3):
        crew.hire(QUEUE)
    ids = await crew.client.dispatch_many(
        [strictly(path=path(crew), name=f"j{n}") for n in range(40)]
    )
    for seen in (8, 16, 24):
        await eventually(lambda: len(moments(path(crew))) >= seen, 20, "some starts")  # noqa: B023
        victim = moments(path(crew))[-1].pid
        for worker in crew.workers:
            if worker.pid == victim:
                worker.signal(signal.SIGKILL)
        crew.hire(QUEUE)
    await all_done(crew, ids, 60)
    assert most_within(moments(path(crew)), 1.0) <= PER_SECOND


@pytest.mark.parametrize("crew_of_its_own", [TABLES], indirect=True)
async def test_a_limit_outlives_the_broker(crew_of_its_own: Crew, broker: Broker) -> None:
    crew = crew_of_its_own
    crew.hire(QUEUE), crew.hire(QUEUE)
    ids = await crew.client.dispatch_many(
        [strictly(path=path(crew), name=f"j{n}") for n in range(40)]
    )
    await eventually(lambda: len(moments(path(crew))) >= 12, 20, "some starts")
    broker.restart()
    await all_done(crew, ids, 60)
    assert most_within(moments(path(crew)), 1.0) <= PER_SECOND


# --- places ---------------------------------------------------------------------------------------
@gated
async def test_jobs_of_a_key_do_not_overlap_and_others_do(crew: Crew) -> None:
    for _ in range(3):
        crew.hire(QUEUE)
    calls = [
        alone(path=path(crew), name=f"{key}{n}", key=key, seconds=0.08)
        for n in range(6)
        for key in ("a", "b")
    ]
    views = await all_done(crew, [await crew.client.dispatch(call) for call in calls])
    found = moments(path(crew))
    for key in ("a", "b"):
        assert overlaps(m for m in found if m.name.startswith(key)) == []
    assert most_at_once(found) == 2
    assert {view.attempts for view in views} == {1}


@gated
async def test_as_many_as_allowed_run_at_once(crew: Crew) -> None:
    for _ in range(4):
        crew.hire(QUEUE)
    calls = [by_two(path=path(crew), name=f"j{n}", seconds=0.1) for n in range(12)]
    await all_done(crew, [await crew.client.dispatch(call) for call in calls])
    assert most_at_once(moments(path(crew))) == 2


@gated
async def test_one_that_finds_no_place_may_be_skipped(crew: Crew) -> None:
    crew.hire(QUEUE), crew.hire(QUEUE)
    first = await crew.client.dispatch(or_not(path=path(crew), name="a", seconds=1))
    await eventually(lambda: moments(path(crew)), 10)
    second = await crew.client.dispatch(or_not(path=path(crew), name="b", seconds=1))
    view = await crew.ended(second)
    end = view.events[-1][1]
    assert isinstance(end, JobCancelled)
    assert (end.cause, end.reason) == ("skipped", "another job runs")
    await all_done(crew, [first])


@gated
async def test_a_stopped_worker_loses_its_place_with_its_life(crew: Crew) -> None:
    crew.hire(QUEUE), crew.hire(QUEUE)
    call = alone(path=path(crew), name="a", key="k", seconds=4, stubborn=True)
    first = await crew.client.dispatch(call)
    begun = await eventually(lambda: moments(path(crew)), 10)
    [stopped] = [worker for worker in crew.workers if worker.pid == begun[0].pid]
    stopped.signal(signal.SIGSTOP)
    second = await crew.client.dispatch(alone(path=path(crew), name="b", key="k", seconds=0.1))
    await all_done(crew, [second])
    assert stopped.exit_code == -signal.SIGKILL
    assert overlaps(moments(path(crew))) == []
    await crew.client.cancel(first)


@pytest.mark.parametrize("seed", [1])
@gated
async def test_whoever_dies_and_whenever_no_key_overlaps(crew: Crew, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(3):
        crew.hire(QUEUE)
    calls = [
        alone(path=path(crew), name=f"j{n}", key="k", seconds=chance.uniform(0.01, 0.2))
        for n in range(20)
    ]
    ids = [await crew.client.dispatch(call) for call in calls]
    for _ in range(4):
        before = len(moments(path(crew)))
        await eventually(lambda: len(moments(path(crew))) > before + 8, 20, "more")  # noqa: B023
        at_work = moments(path(crew))[-1].pid
        for worker in crew.workers:
            if worker.pid == at_work:
                worker.signal(chance.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM]))
        crew.hire(QUEUE)
    for worker in crew.workers:
        worker.signal(signal.SIGCONT)
    await all_done(crew, ids, 60)
    assert overlaps(moments(path(crew))) == []


# --- timeouts -------------------------------------------------------------------------------------
@gated
async def test_a_job_that_holds_the_interpreter_ends_with_its_process(crew: Crew) -> None:
    """No thread of Python's can end it: the kernel does, and the job counts as one that kills."""
    stuck = crew.hire(QUEUE)
    job_id = await crew.client.dispatch(stuck_in_c(path=path(crew), name="a", attempts=1))
    await eventually(lambda: moments(path(crew)), 10, "begun")
    assert await stuck.ended(5) == -signal.SIGALRM
    heir = crew.hire(QUEUE)
    [view] = await all_done(crew, [job_id])
    assert (view.record.worker, view.attempts) == (heir.name, 1)


# --- verdicts and retries -------------------------------------------------------------------------
@gated
async def test_a_job_that_is_put_off_uses_no_attempt(crew: Crew) -> None:
    crew.hire(QUEUE)
    view = (
        await all_done(crew, [await crew.client.dispatch(put_off_once(path=path(crew), name="a"))])
    )[0]
    assert view.attempts == 1
    waits = [event for _, event in view.events if isinstance(event, JobRetrying)]
    assert [(each.attempt, each.put_off) for each in waits] == [(1, "not yet")] * 2


@gated
async def test_a_needless_job_ends_as_skipped(crew: Crew) -> None:
    crew.hire(QUEUE)
    view = await crew.ended(await crew.client.dispatch(needless()))
    end = view.events[-1][1]
    assert isinstance(end, JobCancelled)
    assert (end.cause, end.reason) == ("skipped", "there is nothing to do")
    await crew.emptied(QUEUE)


@gated
async def test_delays_from_a_list_and_from_a_function(crew: Crew) -> None:
    crew.hire(QUEUE)
    ids = [
        await crew.client.dispatch(listed()),
        await crew.client.dispatch(difficult(words=["once", "twice", ""])),
    ]
    views = await all_done(crew, ids)
    assert [view.attempts for view in views] == [4, 3]


@gated
async def test_what_is_fatal_is_not_tried_again(crew: Crew) -> None:
    crew.hire(QUEUE)
    for words, kind in ((["refused"], "Refused"), (["enough"], "RuntimeError")):
        view = await crew.ended(await crew.client.dispatch(difficult(words=words)))
        assert (view.state, view.attempts) == (State.DEAD, 1)
        assert isinstance(view.events[-1][1], JobDead)
        assert view.error.kind.endswith(kind)


@gated
async def test_what_is_harmless_counts_as_success(crew: Crew) -> None:
    crew.hire(QUEUE)
    view = await crew.ended(await crew.client.dispatch(difficult(words=["gone"])))
    end = view.events[-1][1]
    assert isinstance(end, JobCompleted)
    assert end.forgiven.endswith("Gone: gone")
    assert view.result is None


@gated
async def test_a_cancelled_job_leaves_its_place(crew: Crew) -> None:
    """Also one that was interrupted while it asked for it; its worker goes on."""
    crew.hire(QUEUE)
    first = await crew.client.dispatch(alone(path=path(crew), name="a", key="k", seconds=30))
    await eventually(lambda: moments(path(crew)), 10, "begun")
    await crew.client.cancel(first)
    began = time.monotonic()
    second = await crew.client.dispatch(alone(path=path(crew), name="b", key="k", seconds=0.05))
    await all_done(crew, [second])
    assert time.monotonic() - began < 1.4, "its lease had to lapse first"
