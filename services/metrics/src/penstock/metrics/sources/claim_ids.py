"""Ends of messages, counted by the names of those in work, where a system keeps no such count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable


class ClaimIds:
    """What was in work at the last look at each queue.

    A message that was taken and handled between two looks is in neither: it is not counted.
    """

    def __init__(self) -> None:
        self._ids: dict[str, frozenset[bytes]] = {}
        self._ended: Counter[str] = Counter()

    def keep(self, queues: Collection[str]) -> None:
        """Forgets all other queues: those of a pattern come and go."""
        if not self._ids.keys() <= set(queues):
            self._ids = {queue: self._ids[queue] for queue in queues if queue in self._ids}
            self._ended = Counter({queue: self._ended[queue] for queue in self._ids})

    def ended(self, queue: str, ids: Iterable[bytes]) -> int:
        """How many have ended so far.

        Args:
            ids: of the messages of the queue that are in work now.
        """
        before, now = self._ids.get(queue, frozenset()), frozenset(ids)
        self._ids[queue] = now
        self._ended[queue] += len(before - now)
        return self._ended[queue]
