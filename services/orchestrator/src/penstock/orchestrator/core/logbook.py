"""What is reported of the event log: its growth, and the share of jobs that live. Pure."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import NamedTuple

from penstock.health.facts import LogFacts

_WINDOW_SECONDS = 3600.0
_LEAST_SECONDS = 60.0
"""Two looks closer to each other say nothing about hours."""
_LEAST_SHARE = 0.01
"""Passes that removed less than this share of the limit are counted as one: few are remembered."""


class Pass(NamedTuple):
    """What one pass over the log's old end did.

    Attributes:
        removed: bytes that left the log.
        carried: those of them that were stored again, of jobs that live.
        oldest: dispatch of the oldest of these jobs.
    """

    removed: int
    carried: int
    oldest: datetime | None = None


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
        self._passes: deque[Pass] = deque()

    def passed(self, now: float, last: Pass, held: int) -> None:
        """A pass has ended.

        What lives is carried once in each turnover of the log, and often much of it by the same
        pass, so it is judged by as many passes as have removed what the log holds now. What others
        stored meanwhile plays no part.

        Args:
            held: bytes in the log then.
        """
        if not last.removed:
            return
        self._removed_bytes += last.removed
        if self._passes and self._passes[-1].removed < self._limit * _LEAST_SHARE:
            last = _together(self._passes.pop(), last)
        self._passes.append(last)
        removed = sum(one.removed for one in self._passes)
        while len(self._passes) > 1 and removed - self._passes[0].removed >= held:
            removed -= self._passes.popleft().removed
        carried = sum(one.carried for one in self._passes)
        _note(self._living, now, int(held * min(carried / removed, 1.0)))

    def facts(self, now: float, held: int, tail_seconds: float) -> LogFacts:
        """The log now, at ``now`` POSIX seconds."""
        _note(self._stored, now, held + self._removed_bytes)
        oldest = min((one.oldest for one in self._passes if one.oldest), default=None)
        return LogFacts(
            limit_bytes=self._limit,
            held_bytes=held,
            tail_seconds=tail_seconds,
            growth_per_hour=_growth(self._stored),
            living_bytes=self._living[-1][1] if self._living else None,
            living_growth_per_hour=_growth(self._living),
            oldest_living_seconds=now - oldest.timestamp() if oldest else None,
        )


def _together(earlier: Pass, later: Pass) -> Pass:
    oldest = min((one.oldest for one in (earlier, later) if one.oldest), default=None)
    return Pass(earlier.removed + later.removed, earlier.carried + later.carried, oldest)


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
