"""Both ends of the messages of a job with very many events, without reading what is between."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored
from penstock.jobs.event_store import event_log

SHORT = 1_000
"""Messages that are read as a whole."""
_GUESSES = 6
"""Looks for a place by the number of messages behind it, before each look halves what is left."""
_MOST_LOOKS = 70


class Ends(NamedTuple):
    """The messages of a job, oldest first.

    Attributes:
        messages: all of a short history. Of a long one, the first and the last ones of each kind
            of event, and whole kinds where they are few.
        total: how many there are.
        head: so many of the messages come before the first that was not read; all of them where
            none was left out.
    """

    messages: list[Stored]
    total: int
    head: int


async def read_ends(bus: Bus, stream: str, subject: str, most: int) -> Ends:
    """At least the first and the last ``most`` messages under a subject.

    The broker counts those of each kind; of the kinds that are many the beginning and the end are
    read, so that the number of requests does not grow with the history.

    Raises:
        BusError
    """
    counts = await bus.count(stream, subject)
    total = sum(counts.values())
    if total <= SHORT:
        messages = await event_log.read_messages(bus, stream, subject)
        return Ends(messages, len(messages), len(messages))
    parts = await asyncio.gather(
        *(_ends_of_kind(bus, stream, kind, number, most) for kind, number in counts.items())
    )
    # Of each kind that was cut, what lies between the first cut and the last one is dropped: both
    # ends are then without gaps.
    first_cut = min((head[-1].sequence for head, tail in parts if tail), default=2**63)
    last_cut = max((tail[0].sequence for _, tail in parts if tail), default=0)
    messages = [stored for head, tail in parts if not tail for stored in head]
    for head, tail in parts:
        if tail:
            messages += (stored for stored in head if stored.sequence <= first_cut)
            messages += (stored for stored in tail if stored.sequence >= last_cut)
    messages.sort(key=lambda stored: stored.sequence)
    return Ends(messages, total, sum(stored.sequence <= first_cut for stored in messages))


async def read_on(bus: Bus, stream: str, subject: str, after: int, most: int) -> list[Stored]:
    """The next ``most`` messages under a subject after a sequence, oldest first. Raises BusError.

    Each kind is read by itself: with a wildcard the broker would search the stream.
    """
    kinds = await bus.count(stream, subject)
    parts = await asyncio.gather(*(bus.history(stream, kind, most, after + 1) for kind in kinds))
    # A part may have been cut short: beyond its last message others may be missing.
    ends = [part[-1].sequence for part in parts if part and part[-1].behind]
    following = sorted((one for part in parts for one in part), key=lambda one: one.sequence)
    return [one for one in following if one.sequence <= min(ends, default=2**63)][:most]


async def _ends_of_kind(
    bus: Bus, stream: str, subject: str, number: int, most: int
) -> tuple[list[Stored], list[Stored]]:
    """The first and the last messages of one subject; all are first ones where they are few."""
    if number <= 2 * most:
        return await bus.history(stream, subject, number), []
    head = await bus.history(stream, subject, most)
    last = await bus.last(stream, subject)
    if last is None or not head or not head[-1].behind:
        return head, []
    start = await _place_of_last(bus, stream, head[-1], last.sequence, most)
    tail = await bus.history(stream, subject, 3 * most, start)
    return head, tail[-most:] if tail else [last]


async def _place_of_last(bus: Bus, stream: str, low: Stored, end: int, most: int) -> int:
    """A sequence from which on a subject has about ``most`` messages, no fewer.

    Args:
        low: a message with more behind it.
        end: sequence of the last message.
    """
    high = end
    for look in range(_MOST_LOOKS):
        behind = low.behind or 0
        if behind <= 2 * most or high - low.sequence <= 1:
            break
        share = 1.5 * most / behind if look < _GUESSES else 0.5
        middle = high - max(1, round((high - low.sequence) * share))
        middle = max(middle, low.sequence + 1)
        message = next(iter(await bus.history(stream, low.subject, 1, middle)), None)
        if message is None or (message.behind or 0) + 1 < most:
            high = middle
        else:
            low = message
    return low.sequence
