"""Who is to be looked at when: many wait for days, and cost nothing until then."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from datetime import datetime

Name = tuple[str, str]
_MOST_REPLACED = 1_000
"""Times that no longer hold and are kept all the same, until the heap is made anew."""


class Alarms:
    """At most one time for each name."""

    def __init__(self) -> None:
        self._times: dict[Name, datetime] = {}
        self._heap: list[tuple[datetime, Name]] = []

    def set(self, name: Name, at: datetime | None) -> None:
        """Replaces the time of a name; None: it has none."""
        if self._times.get(name) == at:
            return
        if at is None:
            del self._times[name]
            return
        self._times[name] = at
        heapq.heappush(self._heap, (at, name))
        if len(self._heap) > 2 * len(self._times) + _MOST_REPLACED:
            self._heap = [(time, one) for one, time in self._times.items()]
            heapq.heapify(self._heap)

    def due(self, now: datetime) -> Iterator[Name]:
        """Those whose time has come; they have none from then on."""
        while self._heap and self._heap[0][0] <= now:
            at, name = heapq.heappop(self._heap)
            if self._times.get(name) == at:  # else it was replaced
                del self._times[name]
                yield name
