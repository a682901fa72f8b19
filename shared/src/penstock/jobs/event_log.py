"""All events of one job, batch or graph, in order: what every question is answered from."""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime

from penstock.bus.protocol import Bus, BusUnavailable, Stored
from penstock.events.envelope import Codec, Event, MalformedEvent, UnknownEvent
from penstock.events.health import HEALTH_EVENTS, HistoryBegins
from penstock.events.job import JOB_EVENTS
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.runtime.limited_log import LimitedLog

log = logging.getLogger("penstock.jobs")
_MOST_JOBS_LOGGED = 50
_passed_over = LimitedLog(log, max_keys=_MOST_JOBS_LOGGED)
_unreadable = 0

_TRIES = 20
_CARRIED = "Carried"

Story = tuple[tuple[int, Event | UnknownEvent], ...]
"""``(sequence, event)``, oldest first."""


async def read(bus: Bus, subjects: Subjects, job_id: str) -> Story:
    """Every event of a job; empty when there is none.

    What :func:`penstock.jobs.lifecycle.fold` passes over is among them, and logged; but for what is
    left of a history whose beginning left the log, which is the usual fate of old jobs.
    """
    events = await read_subject(bus, subjects.events_stream, subjects.job(job_id), JOB_EVENTS)
    for sequence, why in lifecycle.passed_over(lifecycle.without_tail(events)):
        _passed_over.write(
            logging.WARNING, job_id, "job %s: event %d is passed over: %s", job_id, sequence, why
        )
    return events


def read_event(stored: Stored, codec: Codec) -> Event | UnknownEvent:
    """The stored event.

    Whoever may write to a subject may write anything to it: bytes that are no event, and an event
    of another aggregate or name than the subject says, become an :class:`UnknownEvent` that says
    why. All readers use this, so that all of them pass over the same messages.
    """
    global _unreadable  # noqa: PLW0603 - one counter a process
    _, noun, key, name = stored.subject.rsplit(".", 3)
    try:
        event = codec.decode(stored.body)
    except MalformedEvent as error:
        why = str(error)
    else:
        if isinstance(event, UnknownEvent):
            return event
        if (event.name, event.key, event.noun) == (name, key, noun):
            return event
        why = (
            f"it is {event.name[:80]} of {event.noun} {event.key[:80]}, "
            f"stored as {name} of {noun} {key}"
        )
    _unreadable += 1
    return UnknownEvent(type=name, raw=stored.body, unreadable=why)


def unreadable_messages() -> int:
    """How many messages this process read among events that were none of their subject."""
    return _unreadable


async def begins_at(bus: Bus, subjects: Subjects) -> tuple[int, datetime | None]:
    """Sequence and time from which on the log is whole; earlier messages of ended jobs are gone.

    A job that has not ended always has an event: before its last one goes, the orchestrator stores
    another that holds all of it (:class:`penstock.events.job.JobCarried`). So a job without any
    that was dispatched before this has ended, and one that would have been later never was.
    """
    stream = subjects.events_stream
    first = await bus.next(stream, subjects.events(), 1)
    if first is None:
        return (await bus.extent(stream)).last + 1, None
    stored = await bus.last(stream, subjects.events("health", "log", HistoryBegins.__name__))
    shortened = read_event(stored, HEALTH_EVENTS) if stored else None
    if isinstance(shortened, HistoryBegins) and shortened.sequence > first.sequence:
        return shortened.sequence, shortened.since
    return first.sequence, first.at


async def read_subject(bus: Bus, stream: str, subject: str, codec: Codec) -> Story:
    """Every event under a subject, as of one moment.

    The leader says how many there are of each kind, then each kind is read up to that number. Asked
    with a wildcard instead, the broker looks through the stream to its end: 15 ms where it holds
    180,000 messages, and ever more; this takes 1 ms, however large it is.
    """
    for _ in range(_TRIES):
        counted = await bus.count(stream, subject)
        parts = await asyncio.gather(
            *(_oldest(bus, stream, name, number) for name, number in counted.items())
        )
        # History is shortened at any time: then what was counted is gone, and carried further on;
        # a replica that has not noticed yet answers with messages that its leader has no more.
        is_whole = sum(map(len, parts)) == sum(counted.values())
        if is_whole and any(name.endswith(_CARRIED) for name in counted):
            first = (await bus.extent(stream)).first
            is_whole = all(stored.sequence >= first for part in parts for stored in part)
        if is_whole:
            break
    else:
        raise BusUnavailable(f"{subject}: its messages change too quickly to be read; try again")
    found = sorted((stored for part in parts for stored in part), key=lambda one: one.sequence)
    return tuple((stored.sequence, read_event(stored, codec)) for stored in found)


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
