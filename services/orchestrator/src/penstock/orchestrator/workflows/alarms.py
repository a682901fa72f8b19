"""Who is to be looked at when: many wait for days, and cost nothing until then."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Iterator
from datetime import datetime

Name = tuple[str, str]
_ALL_SECONDS = 60.0
"""All are looked at so often, also those that rest and are touched by no event."""
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


class Rounds:
    """Whom to look at although no event came."""

    def __init__(self) -> None:
        self._restless: set[Name] = set()
        self._alarms = Alarms()
        self._all_at = -_ALL_SECONDS

    def look_soon(self, names: Iterable[Name]) -> None:
        """Something is due for these, and may have to be done again."""
        self._restless.update(names)

    def rests(self, name: Name, until: datetime | None = None) -> None:
        """Nothing is due for it until then; None: until an event comes."""
        self._restless.discard(name)
        self._alarms.set(name, until)

    def begin_anew(self) -> None:
        """All are due."""
        self._all_at = -_ALL_SECONDS

    def due(self, names: Iterable[Name], now: datetime) -> set[Name]:
        """Those that are due now, of all names from time to time."""
        if time.monotonic() - self._all_at >= _ALL_SECONDS:
            self._all_at = time.monotonic()
            return set(names)
        return {*self._restless, *self._alarms.due(now)}
