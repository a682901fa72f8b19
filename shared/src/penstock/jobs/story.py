"""All events of one job, batch or graph, in order: what every question is answered from."""

from __future__ import annotations

import asyncio

from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import Codec, Event, UnknownEvent
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects

Story = tuple[tuple[int, Event | UnknownEvent], ...]
"""``(sequence, event)``, oldest first."""


async def read(bus: Bus, subjects: Subjects, job_id: str) -> Story:
    """Every event of a job; empty when there is none.

    Raises:
        MalformedEvent: something that is no event lies among them.
    """
    return await read_subject(bus, subjects.events_stream, subjects.job(job_id), JOB_EVENTS)


async def read_subject(bus: Bus, stream: str, subject: str, codec: Codec) -> Story:
    """Every event under a subject, as of one moment.

    The leader says how many there are of each kind, then each kind is read up to that number. Asked
    with a wildcard instead, the broker looks through the stream to its end: 15 ms where it holds
    180,000 messages, and ever more; this takes 1 ms, however large it is.

    Raises:
        MalformedEvent: something that is no event lies among them.
    """
    counted = await bus.count(stream, subject)
    parts = await asyncio.gather(
        *(_oldest(bus, stream, name, number) for name, number in counted.items())
    )
    found = sorted((stored for part in parts for stored in part), key=lambda one: one.sequence)
    return tuple((stored.sequence, codec.decode(stored.body)) for stored in found)


async def _oldest(bus: Bus, stream: str, subject: str, number: int) -> list[Stored]:
    """The first ``number`` messages of one subject.

    Read in bulk from any replica, which may lag behind its leader (NATS ADR-31), and cut off where
    they are large; the rest is asked of the leader.
    """
    found = await bus.history(stream, subject, number)
    while len(found) < number:
        following = await bus.next(stream, subject, found[-1].sequence + 1 if found else 1)
        if following is None:  # removed meanwhile
            break
        found.append(following)
    return found
