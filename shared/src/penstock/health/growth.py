"""The growth of disk use, from one look to the next."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from penstock.health.facts import DiskFacts, Facts

WINDOW_SECONDS = 3600.0
_LEAST_SECONDS = 120.0
"""Two looks closer to each other say nothing about hours."""


class DiskGrowth:
    """Remembers what disks held over the last hour.

    Args:
        clock: a steady one, seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: dict[str, deque[tuple[float, int]]] = {}

    def grown(self, facts: Facts) -> Facts:
        """The facts with the growth of each disk since the oldest look of the last hour."""
        now = self._clock()
        disks = tuple(replace(d, growth_per_hour=self._growth(d, now)) for d in facts.disks)
        return replace(facts, disks=disks)

    def _growth(self, disk: DiskFacts, now: float) -> float | None:
        looks = self._looks.setdefault(disk.path, deque())
        looks.append((now, disk.used_bytes))
        while looks[0][0] < now - WINDOW_SECONDS:
            looks.popleft()
        begun_at, before = looks[0]
        if now - begun_at < _LEAST_SECONDS:
            return None
        return (disk.used_bytes - before) / (now - begun_at) * 3600
