"""A paused queue is paused for everyone, at once, through every restart; and nobody is blamed."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.integration import orchestrating
from tests.integration.crew import Crew
from tests.integration.sample_jobs import QUEUE, hold, note
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, BusUnavailable, QueueDepth
from penstock.events.queue import QUEUE_EVENTS
from penstock.events.snapshot import SNAPSHOTS, PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.lifecycle import State
from penstock.jobs.queues.pauses import QueuePauses
from penstock.metrics.app import Metrics
from penstock.runtime.broker import Broker
from penstock.runtime.service import Service


async def test_nobody_is_given_a_job_until_it_is_resumed(crew: Crew) -> None:
    crew.hire()
    running = await crew.client.dispatch(hold(diary=crew.diary.path, name="h", gate=crew.gate()))
    await crew.diary.wait("h", "begun")
    await crew.client.pause_queue(QUEUE, "the lake is down")
    ids = [await crew.client.dispatch(note(diary=crew.diary.path, name=f"j{n}")) for n in range(3)]
    crew.open()
    await crew.ended(running)  # what ran goes on
    crew.hire()  # one that comes later knows as well
    other = await crew.client.dispatch(note(diary=crew.diary.path, name="o"), queue="other")
    assert (await crew.depth()).paused
    await eventually(lambda: _waiting(crew, 3), 5)
    assert [(await crew.client.job(each)).state for each in ids] == [State.WAITING] * 3
    await crew.client.resume_queue(QUEUE)
    for each in ids:
        view = await crew.ended(each)
        assert view.state is State.COMPLETED
    assert (await crew.client.job(other)).state is State.WAITING
    stored = await crew.bus.history(crew.subjects.events_stream, crew.subjects.events("queue"))
    told = [QUEUE_EVENTS.decode(each.body) for each in stored]
    assert [getattr(event, "name", "") for event in told] == ["QueuePaused", "QueueResumed"]
    pause = (await QueuePauses(crew.bus, crew.subjects, "test").all())[QUEUE]
    assert not pause.paused


async def _waiting(crew: Crew, count: int) -> bool:
    return (await crew.depth()).waiting == count


async def test_what_was_waited_in_a_pause_is_nobody_s_fault(crew: Crew) -> None:
    worker = crew.hire()
    await crew.client.pause_queue(QUEUE)
    job_id = await crew.client.dispatch(note(diary=crew.diary.path, name="a"))
    dispatched = (await crew.client.job(job_id)).record.dispatched_at
    await crew.client.pause_queue("other")
    await eventually(lambda: _older(dispatched.timestamp(), 1.0), 5)
    await crew.client.resume_queue(QUEUE)
    view = await crew.ended(job_id)
    [started] = [event for _, event in view.events if getattr(event, "name", "") == "JobStarted"]
    assert started.pickup_seconds < 0.5  # type: ignore[union-attr]
    assert view.record.worker == worker.name


def _older(since: float, seconds: float) -> bool:
    return time.time() - since > seconds


async def test_a_job_whose_worker_dies_in_a_pause_waits_too(crew: Crew) -> None:
    crew.hire()
    job_id = await crew.client.dispatch(hold(diary=crew.diary.path, name="h", gate=crew.gate()))
    [line] = await crew.diary.wait("h", "begun")
    await crew.client.pause_queue(QUEUE)
    crew.worker_of(line).signal(signal.SIGKILL)
    crew.hire()
    crew.open()
    claim = crew.settings.jobs.claim_seconds
    began = (await crew.client.job(job_id)).record.dispatched_at.timestamp()
    await eventually(lambda: _older(began, claim + 1.5), 10)
    assert crew.diary.told("h") == ["begun"]
    await crew.client.resume_queue(QUEUE)
    assert (await crew.ended(job_id)).state is State.COMPLETED


@pytest.mark.parametrize("crew_of_its_own", [{}], indirect=True)
async def test_a_pause_outlives_the_broker(crew_of_its_own: Crew, broker: Broker) -> None:
    crew = crew_of_its_own
    crew.hire()
    await crew.client.pause_queue(QUEUE)
    job_id = await crew.client.dispatch(note(diary=crew.diary.path, name="a"))
    broker.restart()
    assert (await eventually(lambda: _depth_or_none(crew), 15)).paused
    crew.hire()
    await crew.client.dispatch(note(diary=crew.diary.path, name="b"))
    assert (await crew.client.job(job_id)).state is State.WAITING
    await crew.client.resume_queue(QUEUE)
    assert (await crew.ended(job_id)).state is State.COMPLETED


async def _depth_or_none(crew: Crew) -> QueueDepth | None:
    with suppress(BusUnavailable):
        return await crew.depth()
    return None


@pytest.fixture
async def bus(settings: MakeSettings) -> AsyncIterator[Bus]:
    bus = await connect(settings(pools={QUEUE: {}}))
    yield bus
    await bus.close()


async def _is_open(bus: Bus, queue: str) -> bool:
    return not (await bus.depths())[queue].paused


async def test_what_was_cut_off_is_done_by_the_orchestrator(
    settings: MakeSettings, bus: Bus, tmp_path: Path
) -> None:
    """The record is there, the broker was not told: and the other way round."""
    made = settings(pools={QUEUE: {}})
    client = Client(bus, prefix=made.prefix)
    await client.pause_queue("a")
    await client.pause_queue("b")
    await client.resume_queue("b")
    await bus.pause_queue("a", False)  # as when its consumer was made anew
    await bus.pause_queue("b", True)
    await bus.pause_queue("c", True)  # by hand, with the broker's own tool: left alone
    await client.pause_queue("d", until=datetime.now(UTC) + timedelta(seconds=0.5))
    await eventually(lambda: _is_open(bus, "d"), 10, "a pause to end without an orchestrator")
    assert (await client.pauses.all())["d"].paused
    orchestrator = orchestrating.start(made)
    try:

        async def agreed() -> bool:
            paused = {name for name, depth in (await bus.depths()).items() if depth.paused}
            return paused == {"a", "c"}

        await eventually(agreed, 20, "broker and records to agree")

        async def recorded() -> bool:
            return not (await client.pauses.all())["d"].paused

        await eventually(recorded, 20, "the end of a pause to be recorded")
    finally:
        await orchestrator.stop(grace_seconds=10)


async def test_a_paused_queue_asks_for_no_workers(settings: MakeSettings, bus: Bus) -> None:
    made = settings(pools={QUEUE: {}}, metrics={"interval_seconds": 0.1})
    subjects, client = Subjects(made.prefix), Client(bus, prefix=made.prefix)
    service = Service("metrics", made, await connect(made))
    measuring = service.spawn(Metrics(service).run(), "metrics")

    async def snapshot(waiting: int) -> PoolSnapshot | None:
        stored = await bus.last(subjects.snapshots_stream, subjects.pool_snapshot(QUEUE))
        found = SNAPSHOTS.decode(stored.body) if stored else None
        fits = isinstance(found, PoolSnapshot) and found.waiting == waiting
        return found if fits else None  # type: ignore[return-value]

    try:
        await client.dispatch_many([note(diary="d", name=f"j{n}") for n in range(5)])
        await eventually(lambda: snapshot(5), 10, "waiting jobs seen")
        await client.pause_queue(QUEUE)
        paused = await eventually(lambda: snapshot(0), 10, "a pause seen")
        assert paused.oldest_waiting_seconds == 0
        await client.dispatch_many([note(diary="d", name=f"k{n}") for n in range(5)])
        await eventually(lambda: _older(paused.at.timestamp(), 1.0), 5)
        still = await eventually(lambda: snapshot(0), 5)
        assert still.at > paused.at
        await client.resume_queue(QUEUE)
        resumed = await eventually(lambda: snapshot(10), 10, "a queue that goes on")
        assert (resumed.oldest_waiting_seconds or 0) < 1.0
        assert (resumed.arrival_per_second or 0) < 5
    finally:
        service.stopping.set()
        await measuring
        await service.end_tasks()
        await service.bus.close()
