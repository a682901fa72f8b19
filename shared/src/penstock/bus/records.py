"""Records: messages of the streams that keep one a subject, by name; and how one is removed.

A record that was ever replaced is removed by a mark over it that stays. nats-server keeps no trace
on its disk of a message that was replaced, so once the last one is deleted, by whatever request or
by its time to live, the one before it is back when the server starts after a kill
(docs/decisions/0047).
"""

from __future__ import annotations

from penstock.bus.protocol import Bus, Expect, Outgoing, Stored, WrongSequence

_PAGE = 1_000


def is_removed(stored: Stored) -> bool:
    """Whether a message is the mark of a removed record."""
    return not stored.body


async def remove(bus: Bus, stored: Stored) -> bool:
    """Replaces a record by the mark of its removal.

    Returns:
        False when another writer was first.

    Raises:
        BusError
    """
    try:
        await bus.append(Outgoing(stored.subject, b"", expect=Expect(stored.sequence)))
    except WrongSequence:
        return False
    return True


async def read_all(bus: Bus, stream: str, pattern: str) -> list[Stored]:
    """The records of a pattern, however many, without those that were removed.

    Raises:
        BusError
    """
    records: list[Stored] = []
    start = 1
    while page := await bus.history(stream, pattern, _PAGE, start):
        records += (stored for stored in page if not is_removed(stored))
        start = page[-1].sequence + 1
        if not page[-1].behind:
            break
    return records
