"""Invariants 1, 2 and 7: each acknowledged job ends exactly once, whoever dies or freezes.

The oracle of the fixture `crew` reads the whole event log after each test.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from tests.histories import check, read_all
from tests.integration import orchestrating
from tests.integration.crew import Crew, Worker
from tests.integration.sample_jobs import QUEUE, compute, fail, hold, note
from tests.waiting import eventually

from penstock.bus.protocol import BusError, Outgoing
from penstock.jobs import Call
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child

PROMISE_SECONDS = 5.0
"""A job whose worker was killed runs elsewhere within this."""


def held(crew: Crew, name: str = "a", gate: str = "gate") -> Call:
    return hold(diary=crew.diary.path, name=name, gate=crew.gate(gate))


async def begun(crew: Crew, name: str = "a", times: int = 1) -> Worker:
    """The worker that began a job for the nth time."""

    def beginnings() -> list[Worker]:
        lines = [line for line in crew.diary.lines(name) if line.what == "begun"]
        return [crew.worker_of(line) for line in lines]

    await eventually(lambda: len(beginnings()) == times, 15, f"{name} begun {times} times")
    return beginnings()[-1]


def other(crew: Crew, worker: Worker) -> Worker:
    [found] = [each for each in crew.workers if each is not worker]
    return found


# --- workers that die or freeze -------------------------------------------------------------------
@pytest.mark.parametrize("crew", [{"jobs": {"claim_seconds": 4}}], indirect=True)
async def test_the_job_of_a_killed_worker_runs_elsewhere_within_five_seconds(crew: Crew) -> None:
    """With the usual claim, and without an executor that would give it back at once."""
    crew.hire(), crew.hire()
    job_id = await crew.client.dispatch(held(crew))
    victim = await begun(crew)
    killed_at = time.monotonic()
    victim.signal(signal.SIGKILL)
    heir = await begun(crew, times=2)
    assert time.monotonic() - killed_at < PROMISE_SECONDS
    assert heir is other(crew, victim)
    crew.open()
    view = await crew.ended(job_id)
    assert (view.state, view.record.worker, view.attempts) == (State.COMPLETED, heir.name, 1)
    assert await crew.story(job_id) == [
        "JobDispatched", "JobStarted", "JobRecovered", "JobStarted", "JobCompleted"
    ]  # fmt: skip
    assert await victim.ended(1) == -signal.SIGKILL
    await crew.emptied()


async def test_of_a_frozen_worker_and_its_heir_one_completion_stands(crew: Crew) -> None:
    crew.hire(), crew.hire()
    job_id = await crew.client.dispatch(held(crew))
    frozen = await begun(crew)
    frozen.signal(signal.SIGSTOP)
    heir = await begun(crew, times=2)
    crew.open()
    view = await crew.ended(job_id)
    assert view.record.worker == heir.name
    frozen.signal(signal.SIGCONT)
    after = await crew.client.dispatch(note(diary=crew.diary.path, name="b"), delay=0.3)
    await crew.ended(after)
    await eventually(lambda: len(crew.diary.lines("a")) == 4, 10, "both runs told")
    assert (await crew.story(job_id)).count("JobCompleted") == 1
    assert (await crew.client.job(job_id)).record == view.record
    await crew.emptied()


async def test_a_frozen_worker_that_wakes_does_not_take_the_job_from_its_heir(crew: Crew) -> None:
    """The late ack trap: had it acknowledged, the death of the heir would lose the job."""
    crew.hire(), crew.hire()
    job_id = await crew.client.dispatch(held(crew))
    frozen = await begun(crew)
    frozen.signal(signal.SIGSTOP)
    heir = await begun(crew, times=2)
    frozen.signal(signal.SIGCONT)
    pid = frozen.pid
    await eventually(  # its run is over, and dropped
        lambda: [line.what for line in crew.diary.lines("a") if line.pid == pid][1:], 10, "stopped"
    )
    assert [line.what for line in crew.diary.lines("a") if line.pid == pid] == ["begun", "stopped"]
    assert (await crew.client.job(job_id)).state is State.RUNNING
    assert (await crew.depth()).claimed == 1
    heir.signal(signal.SIGKILL)
    assert await begun(crew, times=3) is frozen
    crew.open()
    assert (await crew.ended(job_id)).record.worker == frozen.name
    await crew.emptied()


async def test_a_frozen_worker_that_is_asked_to_end_takes_nothing_along(crew: Crew) -> None:
    """Give-backs are not fenced: those of jobs that somebody else holds now are not sent."""
    crew.hire(), crew.hire()
    job_id = await crew.client.dispatch(held(crew))
    frozen = await begun(crew)
    frozen.signal(signal.SIGSTOP)
    heir = await begun(crew, times=2)
    frozen.signal(signal.SIGTERM)
    frozen.signal(signal.SIGCONT)
    assert await frozen.ended(10) == 0
    crew.hire()
    crew.open()
    assert (await crew.ended(job_id)).record.worker == heir.name
    assert (await crew.story(job_id)).count("JobStarted") == 2


@pytest.mark.parametrize("crew", [{"jobs": {"max_lost_workers": 2}}], indirect=True)
async def test_a_job_that_kills_its_workers_is_put_aside(crew: Crew) -> None:
    for _ in range(3):
        crew.hire()
    job_id = await crew.client.dispatch(held(crew))
    for times in (1, 2):
        (await begun(crew, times=times)).signal(signal.SIGKILL)
    view = await crew.ended(job_id)
    assert (view.state, view.error.kind) == (State.DEAD, "poison")
    letter = crew.subjects.dead(QUEUE, job_id)
    await eventually(lambda: crew.bus.last(crew.subjects.dead_stream, letter), 5, "a dead letter")
    await crew.emptied()


# --- nothing runs twice ---------------------------------------------------------------------------
@pytest.mark.parametrize("crew", [{"jobs": {"claim_seconds": 3}}], indirect=True)
async def test_a_job_that_computes_longer_than_its_claim_runs_once(crew: Crew) -> None:
    crew.hire(), crew.hire()
    call = compute(diary=crew.diary.path, name="a", seconds=5)
    job_id = await crew.client.dispatch(call)
    view = await crew.ended(job_id)
    assert crew.diary.told("a") == ["begun", "done"]
    assert await crew.story(job_id) == ["JobDispatched", "JobStarted", "JobCompleted"]
    assert (view.record.run_seconds or 0) > crew.settings.jobs.claim_seconds


async def test_doubled_messages_run_nothing_twice(crew: Crew) -> None:
    crew.hire(), crew.hire()
    job_id = await crew.client.dispatch(held(crew))
    await begun(crew)
    view = await crew.client.job(job_id)
    double = Outgoing(
        crew.subjects.queue(QUEUE),
        view.record.payload,
        queue_messages.headers(job_id, view.events[0][0], 1, {}),
    )
    await crew.bus.append_many([double] * 5)

    async def dropped() -> bool:
        depth = await crew.depth()
        return (depth.waiting, depth.claimed) == (0, 1)

    await eventually(dropped, 5, "doubles dropped")
    crew.open()
    await crew.ended(job_id)
    await crew.bus.append_many([double] * 5)
    await crew.emptied()
    assert crew.diary.told("a") == ["begun", "done"]


# --- a broker that dies ---------------------------------------------------------------------------
async def test_a_job_outlives_the_broker(crew_of_its_own: Crew, broker: Broker) -> None:
    crew = crew_of_its_own
    worker = crew.hire()
    job_id = await crew.client.dispatch(held(crew))
    await begun(crew)
    await asyncio.to_thread(broker.kill)
    crew.open()
    await crew.diary.wait("a", "begun", "done")
    broker.start()
    view = await crew.ended(job_id)
    assert (view.state, view.attempts) == (State.COMPLETED, 1)
    again = await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    assert (await crew.ended(again)).record.worker == worker.name
    assert crew.diary.told("a") == ["begun", "done"]
    await crew.emptied()


@pytest.fixture
def orchestrator(crew_of_its_own: Crew) -> Iterator[Child]:
    """Makes again what a broker that was killed did not do, such as firing a schedule."""
    process = orchestrating.start(crew_of_its_own.settings)
    yield process
    process.end()


@pytest.mark.usefixtures("orchestrator")
async def test_no_acknowledged_job_is_lost_with_the_broker(
    crew_of_its_own: Crew, broker: Broker
) -> None:
    crew = crew_of_its_own
    crew.hire(), crew.hire()
    acknowledged: list[str] = []
    stop = asyncio.Event()

    async def dispatch(lane: int) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            name = f"l{lane}-{number}"
            call = note(diary=crew.diary.path, name=name)
            if number % 10 == 0:
                call = fail(diary=crew.diary.path, name=name, times=number % 4)
            try:
                acknowledged.append(await crew.client.dispatch(call))
            except BusError:
                continue

    lanes = [asyncio.create_task(dispatch(lane)) for lane in range(4)]
    for _ in range(2):
        enough = len(acknowledged) + 300
        await eventually(lambda: len(acknowledged) >= enough, 30, "a burst")  # noqa: B023
        broker.restart()
    enough = len(acknowledged) + 100
    await eventually(lambda: len(acknowledged) >= enough, 30, "a burst")
    stop.set()
    await asyncio.gather(*lanes)
    records = await settled(crew, acknowledged)
    assert {records[each].state for each in acknowledged} <= {State.COMPLETED, State.DEAD}
    await crew.emptied()


async def settled(crew: Crew, job_ids: list[str]) -> dict[str, JobRecord]:
    """What the oracle says once all of these have ended."""
    for each in job_ids:
        await crew.ended(each, 40)
    return check(await read_all(crew.bus, crew.subjects), job_ids)


# --- all at once ----------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("crew", [{"jobs": {"max_lost_workers": 50}}], indirect=True)
async def test_each_job_ends_once_whoever_dies_and_whenever(crew: Crew, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(3):
        crew.hire()
    ids = [
        await crew.client.dispatch(call, delay=chance.choice([0, 0, 0.5]))
        for call in (_some_job(crew, chance, number) for number in range(150))
    ]
    for _ in range(6):
        await _harm(crew, chance, lambda: len(crew.diary.lines()))
        for each in chance.sample(ids, 3):
            await crew.client.cancel(each)
    for worker in crew.workers:
        worker.signal(signal.SIGCONT)
    records = await settled(crew, ids)
    await crew.emptied()
    states = [records[each].state for each in ids]
    assert states.count(State.COMPLETED) > 100


def _some_job(crew: Crew, chance: random.Random, number: int) -> Call:
    name, diary = f"j{number}", crew.diary.path
    return chance.choice(
        [
            note(diary=diary, name=name),
            compute(diary=diary, name=name, seconds=chance.uniform(0, 0.06)),
            fail(diary=diary, name=name, times=chance.choice([0, 1, 2])),
        ]
    )


async def _harm(crew: Crew, chance: random.Random, lines: Callable[[], int]) -> None:
    """One living worker is killed, frozen, woken or asked to end, when some more has happened."""
    before = lines()
    with suppress(AssertionError):  # all may be frozen, or all done
        await eventually(lambda: lines() >= before + 5, 1.5)
    living = [worker for worker in crew.workers if worker.exit_code is None]
    victim = chance.choice(living)
    victim.signal(chance.choice([signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT, signal.SIGTERM]))
    crew.hire()
