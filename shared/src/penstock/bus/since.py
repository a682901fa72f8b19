"""Finding a message by when it was stored."""

from __future__ import annotations

from datetime import datetime

from penstock.bus.protocol import Bus


async def first_since(bus: Bus, stream: str, subject: str, moment: datetime) -> int:
    """Sequence of the first message of a subject stored at or after ``moment`` (by bisection).

    One past the last message when all are older.
    """
    last = await bus.last(stream, subject)
    if last is None:
        return 1
    low, high = 1, last.sequence + 1
    while low < high:
        middle = (low + high) // 2
        message = await bus.next(stream, subject, middle)
        if message is None or message.at >= moment:
            high = middle
        else:
            low = message.sequence + 1
    return low
