"""How the jobs of a batch ended, recounted from their own events."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from enum import StrEnum
from typing import Any

from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import UnknownEvent
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects
from penstock.jobs.batch_record import BatchRecord
from penstock.jobs.members import Member, member
from penstock.jobs.slots import Slot, Slots
from penstock.jobs.story import read_event


class Ended(StrEnum):
    """``NOT``: it runs again."""

    NOT = "not"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


_ENDED = {
    Slot.COMPLETED: Ended.COMPLETED,
    Slot.FAILED: Ended.FAILED,
    Slot.CANCELLED: Ended.CANCELLED,
}
END_EVENTS = {
    "JobCompleted": Ended.COMPLETED,
    "JobDead": Ended.FAILED,
    "JobCancelled": Ended.CANCELLED,
    "JobRevived": Ended.NOT,
}


async def ended_members(
    bus: Bus,
    subjects: Subjects,
    batch: BatchRecord,
    names: Iterable[str] = END_EVENTS,
) -> dict[Member, Ended]:
    """How each job of the batch ended last.

    Reads the log since the batch's creation; where that has left the log, since what took its
    place, which holds the jobs that had ended.

    Args:
        names: of events that are read; without ``JobCompleted``, the many, it is quick: a job that
            failed and completed later was revived in between.
    """
    latest = {place: _ENDED[slot] for place, slot in Slots(batch.id, batch.slots).ended()}
    start = batch.counted_to + 1 if batch.slots is not None else batch.first_sequence
    wanted = [subjects.events("job", "*", name) for name in names]
    stream = subjects.events_stream
    lasts = [await bus.last(stream, subject) for subject in wanted]
    end = max((last.sequence for last in lasts if last), default=0)
    if end < start:
        return latest
    following: Any = bus.follow(stream, wanted, start)
    async with aclosing(following) as messages:
        async for stored in messages:
            _, job_id, name = stored.subject.rsplit(".", 2)
            place = member(job_id)
            if place is not None and place.batch == batch.id and _counts(stored):
                latest[place] = END_EVENTS[name]
            if stored.sequence >= end:
                break
    return latest


def _counts(stored: Stored) -> bool:
    """Whether the message is an event; a forged one is passed over, as the job's fold does."""
    return not isinstance(read_event(stored, JOB_EVENTS), UnknownEvent)
