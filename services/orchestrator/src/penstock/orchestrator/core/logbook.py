"""What is told of the event log: how fast it grows, and how much of it lives. Pure."""

from __future__ import annotations

from collections import deque
from datetime import datetime

from penstock.health.facts import LogFacts

_WINDOW_SECONDS = 3600.0
_LEAST_SECONDS = 60.0
"""Two looks closer to each other say nothing about hours."""


class Logbook:
    """Remembers looks at the log, and what passes over it carried.

    Args:
        limit_bytes: what history may take.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._removed_bytes = 0
        self._stored: deque[tuple[float, int]] = deque()
        self._living: deque[tuple[float, int]] = deque()
        self._oldest: datetime | None = None

    def passed(
        self, now: float, removed: int, carried: int, held: int, oldest: datetime | None
    ) -> None:
        """A pass has ended.

        Args:
            removed / carried: bytes that left the log, and those of them that were stored again.
            held: bytes in the log then. oldest: dispatch of the oldest job that was carried.
        """
        self._removed_bytes += removed
        self._oldest = oldest
        living = int(held * min(carried / removed, 1.0)) if removed else held
        _note(self._living, now, living)

    def facts(self, now: float, held: int, tail_seconds: float) -> LogFacts:
        """The log now, at ``now`` POSIX seconds."""
        _note(self._stored, now, held + self._removed_bytes)
        oldest = self._oldest
        return LogFacts(
            limit_bytes=self._limit,
            held_bytes=held,
            tail_seconds=tail_seconds,
            growth_per_hour=_growth(self._stored),
            living_bytes=self._living[-1][1] if self._living else None,
            living_growth_per_hour=_growth(self._living),
            oldest_living_seconds=now - oldest.timestamp() if oldest else None,
        )


def _note(looks: deque[tuple[float, int]], now: float, value: int) -> None:
    looks.append((now, value))
    while looks[0][0] < now - _WINDOW_SECONDS and len(looks) > 2:
        looks.popleft()


def _growth(looks: deque[tuple[float, int]]) -> float | None:
    """Per hour, between the first and the last look; None where they are too close."""
    if not looks or looks[-1][0] - looks[0][0] < _LEAST_SECONDS:
        return None
    (began, before), (ended, after) = looks[0], looks[-1]
    return (after - before) / (ended - began) * 3600
