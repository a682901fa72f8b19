"""How the jobs of a batch ended, recounted from their own events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from enum import StrEnum

from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import UnknownEvent
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.batches.slots import Slot, Slots
from penstock.jobs.derived_ids import Member, member
from penstock.jobs.event_store.event_log import read_event

_PAGE = 1_000
_REPLICA_SECONDS = 0.1


class MemberEnd(StrEnum):
    """``NOT``: it runs again."""

    NOT = "not"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDED = {
    Slot.COMPLETED: MemberEnd.COMPLETED,
    Slot.FAILED: MemberEnd.FAILED,
    Slot.CANCELLED: MemberEnd.CANCELLED,
}
END_EVENTS = {
    "JobCompleted": MemberEnd.COMPLETED,
    "JobDead": MemberEnd.FAILED,
    "JobCancelled": MemberEnd.CANCELLED,
    "JobRevived": MemberEnd.NOT,
}


async def ended_members(
    bus: Bus,
    subjects: Subjects,
    batch: BatchRecord,
    names: Iterable[str] = END_EVENTS,
) -> dict[Member, MemberEnd]:
    """How each job of the batch ended last.

    Reads the log since the batch's creation; where that has left the log, since what took its
    place, which holds the jobs that had ended.

    Args:
        names: of events that are read; without ``JobCompleted``, the many, it is quick: a job that
            failed and completed later was revived in between.
    """
    latest = {place: _ENDED[slot] for place, slot in Slots(batch.id, batch.slots).ended()}
    start = batch.counted_to + 1 if batch.slots is not None else batch.first_sequence
    sequences: dict[Member, int] = {}
    for name in names:
        subject = subjects.events("job", "*", name)
        async for message in _stored(bus, subjects.events_stream, subject, start):
            place = member(message.subject.rsplit(".", 2)[1])
            if place is None or place.batch != batch.id or not _counts(message):
                continue
            if message.sequence > sequences.get(place, 0):
                sequences[place], latest[place] = message.sequence, END_EVENTS[name]
    return latest


async def _stored(bus: Bus, stream: str, subject: str, start: int) -> AsyncIterator[Stored]:
    """What the subject holds from ``start`` on, up to the last message that its leader knows."""
    last = await bus.last(stream, subject)
    while last is not None and start <= last.sequence:
        page = await bus.history(stream, subject, _PAGE, start)
        for message in page:
            yield message
            start = message.sequence + 1
        if not page:  # a replica that lags behind, unless history was shortened meanwhile
            await asyncio.sleep(_REPLICA_SECONDS)
            last = await bus.last(stream, subject)


def _counts(stored: Stored) -> bool:
    """Whether the message is an event; a forged one is passed over, as the job's fold does."""
    return not isinstance(read_event(stored, JOB_EVENTS), UnknownEvent)
