"""The events of one job, batch or graph: read as of one moment, append, wait for the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from penstock import telemetry
from penstock.bus.protocol import Bus, BusUnavailable, Expect, Outgoing, Stored, WrongSequence
from penstock.events.envelope import Codec, Event, MalformedEvent, UnknownEvent, encode
from penstock.events.health import HEALTH_EVENTS, HistoryBegins
from penstock.events.subjects import Subjects
from penstock.runtime.tasks import within

T = TypeVar("T")

_TRIES = 20
_CARRIED = "Carried"
_PAGE = 200
"""Messages: 17 MB at most, where each is a signal of the largest size."""
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.02, 2.0
"""A waiting client also reads by itself: soon after it was notified of an event, since it is
notified before the event is stored (an atomic batch some milliseconds), then seldom: a notification
can be lost."""
_unreadable_messages = 0

History = tuple[tuple[int, Event | UnknownEvent], ...]
"""``(sequence, event)``, oldest first."""


# --- reading --------------------------------------------------------------------------------------
async def read_subject(bus: Bus, stream: str, subject: str, codec: Codec) -> History:
    """Every event under a subject, as of one moment. Raises BusUnavailable."""
    messages = await read_messages(bus, stream, subject)
    return tuple((stored.sequence, read_event(stored, codec)) for stored in messages)


async def read_messages(bus: Bus, stream: str, subject: str) -> list[Stored]:
    """Every message under a subject, as of one moment, oldest first.

    The leader counts the messages of each kind, then each kind is read up to that number. With a
    wildcard instead, the broker searches the stream to its end: 15 ms where it holds 180,000
    messages, and ever longer; this takes 1 ms, however large it is.

    Raises:
        BusUnavailable: the messages changed each time while they were read.
    """
    for _ in range(_TRIES):
        counts = await bus.count(stream, subject)
        parts = await asyncio.gather(
            *(_oldest(bus, stream, name, number) for name, number in counts.items())
        )
        # History is shortened at any time: messages that were counted are then removed, and carried
        # further on; a replica that lags behind answers with messages that its leader has removed.
        is_whole = sum(map(len, parts)) == sum(counts.values())
        if is_whole and any(name.endswith(_CARRIED) for name in counts):
            first = (await bus.extent(stream)).first
            is_whole = all(stored.sequence >= first for part in parts for stored in part)
        if is_whole:
            break
    else:
        raise BusUnavailable(f"{subject}: its messages change too quickly to be read; try again")
    return sorted((stored for part in parts for stored in part), key=lambda one: one.sequence)


async def pages(bus: Bus, stream: str, subject: str, start: int) -> AsyncIterator[list[Stored]]:
    """The messages of one subject (no wildcards) from a sequence on, oldest first, some at a time.

    Raises:
        BusUnavailable
    """
    while True:
        page = await bus.history(stream, subject, _PAGE, start)
        if not page:  # or a replica that lags behind its leader
            following = await bus.next(stream, subject, start)
            if following is None:
                return
            page = [following]
        yield page
        start = page[-1].sequence + 1


async def _oldest(bus: Bus, stream: str, subject: str, number: int) -> list[Stored]:
    """The first ``number`` messages of one subject.

    Read in bulk from any replica, which may lag behind its leader (NATS ADR-31) and cuts the answer
    off where messages are large; the rest is read from the leader.
    """
    messages = await bus.history(stream, subject, number)
    while len(messages) < number:
        start = messages[-1].sequence + 1 if messages else 1
        following = await bus.next(stream, subject, start)
        if following is None:  # removed meanwhile
            break
        messages.append(following)
    return messages


def read_event(stored: Stored, codec: Codec) -> Event | UnknownEvent:
    """The stored event.

    A client that may write to a subject may write anything to it: bytes that are no event, and an
    event of another aggregate or name than the subject's, become an :class:`UnknownEvent` with the
    reason. All readers use this function, so that all of them pass over the same messages.
    """
    global _unreadable_messages  # noqa: PLW0603 - one counter a process
    _, noun, key, name = stored.subject.rsplit(".", 3)
    try:
        event = codec.decode(stored.body)
    except MalformedEvent as error:
        reason = str(error)
    else:
        if isinstance(event, UnknownEvent):
            return event
        if (event.name, event.key, event.noun) == (name, key, noun):
            return event
        reason = (
            f"it is {event.name[:80]} of {event.noun} {event.key[:80]}, "
            f"stored as {name} of {noun} {key}"
        )
    _unreadable_messages += 1
    return UnknownEvent(type=name, raw=stored.body, unreadable=reason)


def unreadable_messages() -> int:
    """How many messages this process read among events that were none of their subject."""
    return _unreadable_messages


async def begins_at(bus: Bus, subjects: Subjects) -> tuple[int, datetime | None]:
    """Sequence and time from which on the log is whole; earlier messages of ended jobs are removed.

    A job that has not ended always has an event: before its last one is removed, the orchestrator
    stores another that holds all of it (:class:`penstock.events.job.JobCarried`). So a job
    without events that was dispatched before this has ended; one dispatched later never existed.
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


# --- appending ------------------------------------------------------------------------------------
async def append_if(
    bus: Bus,
    subjects: Subjects,
    event: Event,
    sequence: int,
    trace: Mapping[str, str] | None = None,
) -> int | None:
    """Stores an event if ``sequence`` is the last one of its aggregate.

    Args:
        trace: W3C headers to store with it; None for those of the current span.

    Returns:
        The event's sequence; None when another event was stored before.

    Raises:
        BusError: it could not be stored, or whether it was is not known.
    """
    headers = telemetry.inject() if trace is None else trace
    expect = Expect(sequence, subjects.events(event.noun, event.key))
    try:
        return await bus.append(Outgoing(subjects.event(event), encode(event), headers, expect))
    except WrongSequence:
        return None


# --- waiting --------------------------------------------------------------------------------------
async def wait_until(
    bus: Bus,
    subject: str,
    read: Callable[[], Awaitable[T]],
    is_reached: Callable[[T], bool],
    timeout_seconds: float | None,
    names: Container[str] | None = None,
) -> T:
    """Reads whenever something is stored under ``subject``, and seldom without a notification.

    Waits through restarts of the broker.

    Args:
        read: the state now.
        is_reached: whether it is the state that is waited for.
        timeout_seconds: None to wait for ever.
        names: of the events that may lead to it: others are no reason to read a long history.

    Raises:
        TimeoutError
    """
    notified = asyncio.Event()

    def notify(stored: str, _: bytes) -> None:
        if names is None or stored.rpartition(".")[2] in names:
            notified.set()

    subscription = await bus.listen(subject, notify)
    pause_seconds = _LOOK_SECONDS
    try:
        async with asyncio.timeout(timeout_seconds):
            while True:
                notified.clear()
                with suppress(BusUnavailable):
                    state = await read()
                    if is_reached(state):
                        return state
                if await within(pause_seconds, notified.wait()):
                    pause_seconds = _FIRST_LOOK_SECONDS
                else:
                    pause_seconds = min(2 * pause_seconds, _LOOK_SECONDS)
    finally:
        await subscription.unsubscribe()
