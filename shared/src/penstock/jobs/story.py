"""All events of one job, batch or graph, in order: what every question is answered from."""

from __future__ import annotations

import asyncio

from penstock.bus.protocol import Bus
from penstock.events.envelope import Codec, Event, UnknownEvent
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects

Story = tuple[tuple[int, Event | UnknownEvent], ...]
"""``(sequence, event)``, oldest first."""

_AT_ONCE = 10_000


async def read(bus: Bus, subjects: Subjects, job_id: str) -> Story:
    """Every event of a job; empty when there is none.

    Raises:
        MalformedEvent: something that is no event lies among them.
    """
    return await read_subject(bus, subjects.events_stream, subjects.job(job_id), JOB_EVENTS)


async def read_subject(bus: Bus, stream: str, subject: str, codec: Codec) -> Story:
    """Every event under a subject.

    Histories are read in bulk from any replica, which may lag behind its leader (NATS ADR-31), and
    the broker cuts long ones off. The last event, asked of the leader, tells whether all are there.

    Raises:
        MalformedEvent: something that is no event lies among them.
    """
    last, found = await asyncio.gather(
        bus.last(stream, subject), bus.history(stream, subject, _AT_ONCE)
    )
    while last is not None and (not found or found[-1].sequence < last.sequence):
        after = found[-1].sequence + 1 if found else 1
        following = await bus.next(stream, subject, after)
        if following is None:  # removed meanwhile
            break
        found.append(following)
    return tuple((stored.sequence, codec.decode(stored.body)) for stored in found)
