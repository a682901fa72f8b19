"""Durations over a window that ages by time, exact where the metrics service keeps a sketch."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from penstock.events.snapshot import Quantiles

_PARTS = 6


class _Part:
    __slots__ = ("seconds", "squares", "start", "total")

    def __init__(self, start: float) -> None:
        self.start, self.total, self.squares = start, 0.0, 0.0
        self.seconds: list[float] = []


class Samples:
    """Seconds over the last ``window_seconds``, forgotten a sixth at a time.

    Args:
        keeps_last: what was known last stays known until something newer comes.
    """

    def __init__(self, window_seconds: float, *, keeps_last: bool = False) -> None:
        self._window, self._keeps_last = window_seconds, keeps_last
        self._parts: deque[_Part] = deque()
        self._sorted: list[float] = []
        self._last: Quantiles | None = None
        self._changed = False

    def add(self, seconds: float, now: float) -> None:
        if not self._parts or now - self._parts[-1].start >= self._window / _PARTS:
            self._forget(now)
            self._parts.append(_Part(now))
        part = self._parts[-1]
        part.seconds.append(seconds)
        part.total += seconds
        part.squares += seconds * seconds
        insort(self._sorted, seconds)
        self._changed = True

    def quantiles(self, now: float) -> Quantiles | None:
        """The distribution now; None when there is no sample to speak of."""
        self._forget(now)
        if self._changed and (self._sorted or not self._keeps_last):
            self._last = self._summary() if self._sorted else None
        self._changed = False
        return self._last

    def _forget(self, now: float) -> None:
        while self._parts and self._parts[0].start + self._window / _PARTS <= now - self._window:
            self._drop(self._parts.popleft().seconds)
            self._changed = True

    def _drop(self, gone: list[float]) -> None:
        if len(gone) == len(self._sorted):
            self._sorted.clear()
            return
        for seconds in gone:
            del self._sorted[bisect_left(self._sorted, seconds)]

    def _summary(self) -> Quantiles:
        count = len(self._sorted)
        mean = sum(part.total for part in self._parts) / count
        return Quantiles(
            count=count,
            mean_seconds=mean,
            p50_seconds=self._quantile(0.5),
            p95_seconds=self._quantile(0.95),
            p99_seconds=self._quantile(0.99),
            cv2=_cv2(count, mean, sum(part.squares for part in self._parts)),
        )

    def _quantile(self, share: float) -> float:
        return self._sorted[min(int(share * len(self._sorted)), len(self._sorted) - 1)]


def _cv2(count: int, mean: float, squares: float) -> float:
    """Squared coefficient of variation; 1 (exponential) where the sums cannot tell."""
    ratio = squares / (count * mean * mean) if count > 1 and mean else 0.0
    return max(ratio - 1.0, 0.0) if ratio > 1 - 1e-6 else 1.0
