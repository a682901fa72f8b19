"""Durations over a window that ages by time, exact where the metrics service keeps a sketch."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from msgspec.structs import replace

from penstock.events.snapshot import Quantiles
from penstock.measuring.quantiles import summary

_PARTS = 6


class _Part:
    __slots__ = ("seconds", "squares", "start", "total")

    def __init__(self, start: float) -> None:
        self.start, self.total, self.squares = start, 0.0, 0.0
        self.seconds: list[float] = []


class Samples:
    """Seconds over the last ``window_seconds``, forgotten a sixth at a time.

    Args:
        keeps: so many samples at least stay known, however old.
    """

    def __init__(self, window_seconds: float, *, keeps: int = 0) -> None:
        self._window, self._keeps = window_seconds, keeps
        self._parts: deque[_Part] = deque()
        self._sorted: list[float] = []
        self._last: Quantiles | None = None
        self._changed = False
        self._newest_at = 0.0

    def add(self, seconds: float, now: float) -> None:
        if not self._parts or self._is_full(self._parts[-1], now):
            self._forget(now)
            self._parts.append(_Part(now))
        part = self._parts[-1]
        part.seconds.append(seconds)
        part.total += seconds
        part.squares += seconds * seconds
        insort(self._sorted, seconds)
        self._changed, self._newest_at = True, now

    def quantiles(self, now: float) -> Quantiles | None:
        """The distribution now; None when there is no sample to speak of."""
        self._forget(now)
        if self._changed:
            self._last = self._summary()
        self._changed = False
        return self._last and replace(self._last, age_seconds=now - self._newest_at)

    def _is_full(self, part: _Part, now: float) -> bool:
        """Rare samples share parts, as they do in a sketch."""
        over = now - part.start >= self._window / _PARTS
        return over and len(part.seconds) * _PARTS >= self._keeps

    def _is_over(self, part: _Part, now: float) -> bool:
        """Old, and there are enough without it."""
        old = part.start + self._window / _PARTS <= now - self._window
        return old and len(self._sorted) - len(part.seconds) >= self._keeps

    def _forget(self, now: float) -> None:
        while self._parts and self._is_over(self._parts[0], now):
            self._drop(self._parts.popleft().seconds)
            self._changed = True

    def _drop(self, removed: list[float]) -> None:
        if len(removed) == len(self._sorted):
            self._sorted.clear()
            return
        for seconds in removed:
            del self._sorted[bisect_left(self._sorted, seconds)]

    def _summary(self) -> Quantiles | None:
        if not self._sorted:
            return None
        total = sum(part.total for part in self._parts)
        return summary(self._sorted, total, sum(part.squares for part in self._parts))
