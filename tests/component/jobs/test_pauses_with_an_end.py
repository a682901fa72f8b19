"""A pause with an end is ended by the broker, and recorded afterwards by whoever looks next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.making import MakeSettings

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import Event, encode
from penstock.events.queue import QUEUE_EVENTS, QueuePaused
from penstock.events.subjects import Subjects
from penstock.jobs.errors import BadTime
from penstock.jobs.queues.pauses import Pause, QueuePauses, Resumptions
from penstock.testing.memory.bus import MemoryBus

QUEUE = "reports"


class Clock:
    """The broker's time, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds

    def after(self, seconds: float) -> datetime:
        return datetime.fromtimestamp(self.seconds + seconds, UTC)


class Installation:
    """A broker in memory, a client that pauses, and the orchestrator's look at the records."""

    def __init__(self, bus: MemoryBus, subjects: Subjects, clock: Clock) -> None:
        self.bus, self.subjects, self.clock = bus, subjects, clock
        self.client = QueuePauses(bus, subjects, "cli")
        self.orchestrator = QueuePauses(bus, subjects, "orchestrator")

    async def look(self) -> None:
        """One round of the orchestrator."""
        await self.orchestrator.agree((await self.bus.depths()).values())

    async def is_paused(self) -> bool:
        return (await self.bus.depths())[QUEUE].paused

    async def events(self) -> list[Event]:
        pattern = self.subjects.events("queue")
        stored = await self.bus.history(self.subjects.events_stream, pattern)
        return [QUEUE_EVENTS.decode(message.body) for message in stored]  # type: ignore[misc]

    async def record(self) -> Pause:
        return (await self.client.all())[QUEUE]


@pytest.fixture
async def at(settings: MakeSettings) -> AsyncIterator[Installation]:
    made, clock = settings(pools={QUEUE: {}}), Clock()
    bus = MemoryBus(settings=made, now=clock)
    yield Installation(bus, Subjects(made.prefix), clock)
    await bus.close()


async def test_it_ends_without_the_orchestrator_and_is_recorded_once_it_looks(
    at: Installation,
) -> None:
    end = at.clock.after(60)
    await at.client.pause(QUEUE, "month end", end)
    await at.look()
    assert await at.is_paused()
    at.clock.seconds += 61  # no orchestrator runs
    assert not await at.is_paused()
    assert (await at.record()).paused
    assert not (await at.record()).lasts(at.clock())

    await asyncio.gather(at.look(), at.look())
    await at.look()
    record = await at.record()
    assert (record.paused, record.at, record.by) == (False, end, "orchestrator")
    assert [(event.name, event.source) for event in await at.events()] == [
        ("QueuePaused", "cli"),
        ("QueueResumed", "orchestrator"),
    ]
    assert (await at.events())[-1].at == end


async def test_what_a_kill_between_event_and_record_left_is_completed(at: Installation) -> None:
    await at.client.pause(QUEUE, "", at.clock.after(60))
    stored = await at.bus.last(at.subjects.state_stream, at.subjects.state("pause", QUEUE))
    at.clock.seconds += 61
    await at.look()
    assert stored is not None
    await at.bus.append(Outgoing(stored.subject, stored.body))  # the record as it was before
    await at.look()
    assert not (await at.record()).paused
    assert [event.name for event in await at.events()] == ["QueuePaused", "QueueResumed"]


@pytest.mark.parametrize("seconds", [30, 3600])
async def test_a_second_pause_replaces_the_first(at: Installation, seconds: float) -> None:
    await at.client.pause(QUEUE, "first", at.clock.after(60))
    await at.client.pause(QUEUE, "second", end := at.clock.after(seconds))
    await at.look()
    assert (await at.bus.depths())[QUEUE].paused_until == end
    at.clock.seconds += seconds - 1
    await at.look()
    assert await at.is_paused()
    at.clock.seconds += 2
    await at.look()
    assert not await at.is_paused()
    assert [event.name for event in await at.events()] == [
        *("QueuePaused", "QueuePaused", "QueueResumed")
    ]


async def test_a_pause_that_comes_while_an_end_is_recorded_stays(at: Installation) -> None:
    await at.client.pause(QUEUE, "first", at.clock.after(60))
    at.clock.seconds += 61
    append, later = at.bus.append, at.clock.after(3600)

    async def pause_first(message: Outgoing) -> int:
        at.bus.append = append  # type: ignore[method-assign]
        await at.client.pause(QUEUE, "second", later)
        return await append(message)

    at.bus.append = pause_first  # type: ignore[method-assign]
    await at.look()
    assert await at.is_paused()
    assert (await at.record()).until == later
    assert [event.name for event in await at.events()] == ["QueuePaused", "QueuePaused"]


async def test_it_is_resumed_before_its_end(at: Installation) -> None:
    await at.client.pause(QUEUE, "", at.clock.after(60))
    await at.client.resume(QUEUE)
    assert not await at.is_paused()
    at.clock.seconds += 61
    await at.look()
    assert [event.name for event in await at.events()] == ["QueuePaused", "QueueResumed"]


async def test_an_end_that_the_broker_was_not_told_is_handed_to_it(at: Installation) -> None:
    await at.client.pause(QUEUE, "", at.clock.after(60))
    await at.client.pause(QUEUE, "", longer := at.clock.after(3600))
    await at.bus.pause_queue(QUEUE, True, at.clock.after(60))  # as if the client died in between
    await at.look()
    assert (await at.bus.depths())[QUEUE].paused_until == longer


@pytest.mark.parametrize(
    ("until", "sentence"),
    [
        (timedelta(seconds=-1), "a pause ends in the future"),
        (timedelta(0), "a pause ends in the future"),
        (timedelta(days=30, seconds=1), "a pause ends within 30 days"),
    ],
)
async def test_an_end_that_cannot_be_is_refused(
    at: Installation, until: timedelta, sentence: str
) -> None:
    with pytest.raises(BadTime, match=sentence):
        await at.client.pause(QUEUE, "", at.clock.after(0) + until)
    with pytest.raises(BadTime, match="lacks its offset"):
        await at.client.pause(QUEUE, "", datetime(2027, 1, 1))
    assert not await at.client.all()


async def test_a_record_without_an_end_goes_on_as_it_is(at: Installation) -> None:
    old = {"queue": QUEUE, "paused": True, "at": at.clock.after(0), "reason": "r", "by": "cli"}
    subject = at.subjects.state("pause", QUEUE)
    await at.bus.append(Outgoing(subject, msgspec.json.encode(old)))
    await at.bus.ensure_queue(QUEUE)
    at.clock.seconds += 10_000_000
    await at.look()
    assert await at.is_paused()
    assert (await at.record()).until is None
    assert b"until" not in encode(QueuePaused(queue=QUEUE))


def test_a_wait_counts_from_the_end_of_a_pause_though_nobody_recorded_it() -> None:
    clock, resumptions = Clock(), Resumptions()
    end = clock.after(60)
    resumptions.note([Pause(queue=QUEUE, paused=True, at=clock.after(0), until=end)])
    assert resumptions.last(QUEUE, clock()) == 0
    assert resumptions.last(QUEUE, clock() + 61) == end.timestamp()
