"""Where in a stream a moment lies."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.bus.protocol import Bus


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The last message of a stream that was stored at a moment or before it."""

    sequence: int
    at: datetime


async def last_until(bus: Bus, stream: str, subject: str, moment: datetime) -> Place | None:
    """The last message that was stored by then, by bisection: some 40 reads of one message.

    Args:
        bus: a connection.
        stream: its name.
        subject: of all of its messages.
        moment: by the broker's clock.

    Returns:
        None where all that the stream holds is later.
    """
    extent = await bus.extent(stream)
    low, high = max(extent.first, 1), extent.last + 1
    last: Place | None = None
    while low < high:
        middle = (low + high) // 2
        message = await bus.next(stream, subject, middle)
        if message is None or message.at > moment:
            high = middle
        else:
            last = Place(sequence=message.sequence, at=message.at)
            low = message.sequence + 1
    return last
