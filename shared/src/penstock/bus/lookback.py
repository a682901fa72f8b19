"""Reading streams from the end: recent messages, the last of each subject, since a moment."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored

FIRST_SPAN = 1_000
"""Sequences that are read first; each further step reads four times as many."""
DEEPEST_SPAN = 64_000


class Back(NamedTuple):
    """Messages, oldest first, and whether the stream holds no earlier ones."""

    messages: list[Stored]
    complete: bool


async def back(bus: Bus, stream: str, subject: str) -> AsyncIterator[Back]:
    """Reads back further and further from the last message of a subject, up to DEEPEST_SPAN."""
    last = await bus.last(stream, subject)
    if last is None:
        yield Back([], complete=True)
        return
    first = min(max((await bus.extent(stream)).first, 1), last.sequence)
    span = FIRST_SPAN
    while True:
        start = max(first, last.sequence - span + 1)
        messages = [stored async for stored in between(bus, stream, subject, start, last.sequence)]
        yield Back(messages, complete=start == first)
        if start == first or span >= DEEPEST_SPAN:
            return
        span *= 4


async def newest(bus: Bus, stream: str, subject: str, limit: int) -> list[Stored]:
    """The last ``limit`` messages of a subject, oldest first."""
    messages: list[Stored] = []
    async for messages, _ in back(bus, stream, subject):
        if len(messages) >= limit:
            break
    return messages[-limit:]


async def latest(bus: Bus, stream: str, subject: str) -> list[Stored]:
    """The last message of each subject that matches."""
    last = await bus.last(stream, subject)
    if last is None:
        return []
    return [stored async for stored in between(bus, stream, subject, "last", last.sequence)]


async def between(
    bus: Bus, stream: str, subject: str | Sequence[str], start: int | str, end: int
) -> AsyncIterator[Stored]:
    """The messages of a subject between two sequences, both included.

    Args:
        bus: a connection.
        stream: name of the stream.
        subject: may have wildcards; or several subjects.
        start: where to begin, as for `Bus.follow`.
        end: sequence of a message that exists, else the call waits for a later one.
    """
    async with aclosing(_follow(bus, stream, subject, start)) as messages:
        async for stored in messages:
            yield stored
            if stored.sequence >= end:
                return


async def _follow(
    bus: Bus, stream: str, subject: str | Sequence[str], start: int | str
) -> AsyncGenerator[Stored, None]:
    subjects = [subject] if isinstance(subject, str) else list(subject)
    async for stored in bus.follow(stream, subjects, start):
        yield stored
