"""Counts of RabbitMQ that only grow, made of figures that begin anew and miss some messages."""

from __future__ import annotations

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """A queue's figures at one look.

    Attributes:
        held: messages that wait or are in work.
        published: by the server's count; what a queue dead-letters into another is not in it.
        ended: acknowledged, or delivered without waiting for that.
    """

    held: int
    published: int
    ended: int


class GrowingCounts:
    """The counts of one queue, look by look.

    Messages came at least as often as publishers sent them, and at least as often as ``held`` and
    ``ended`` together grew: the first misses those that were dead-lettered into the queue, the
    second those that expired or were purged. The larger of both counts. It never falls, because the
    server reads its figures at different instants.

    Attributes:
        epoch: how often the counts began anew.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._first: Counts | None = None
        self._latest: Counts | None = None
        self._arrived = 0

    def begin_anew(self) -> None:
        """The next figures are not compared with those before, such as after a lost connection."""
        if self._first is not None:
            self.epoch += 1
        self._first = self._latest = None
        self._arrived = 0

    def arrived(self, counts: Counts) -> int:
        """How many came in this epoch; a count that fell begins another one."""
        latest = self._latest
        if latest and (counts.published < latest.published or counts.ended < latest.ended):
            self.begin_anew()
        first = self._first = self._first or counts
        self._latest = counts
        by_balance = counts.held - first.held + counts.ended - first.ended
        self._arrived = max(self._arrived, counts.published - first.published, by_balance)
        return self._arrived
