"""How long workers take to start: a distribution, and what it adds that several start together."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import isfinite, sqrt
from typing import NamedTuple

from msgspec.structs import replace

from penstock.events.snapshot import Quantiles, SpawnFit
from penstock.measuring.quantiles import quantile, summary

_WINDOW_SECONDS = 900.0
_MOST = 256
_MOST_SECONDS, _MOST_TOGETHER = 86_400.0, 10_000
_CERTAIN = 2.0
"""A slope of less than this many standard errors is taken for chance."""


class Start(NamedTuple):
    """One worker's, heard of at ``at``; ``together``: this one and those starting beside it."""

    at: float
    seconds: float
    together: int


class Starts:
    """The starts of the last quarter of an hour, at most 256; the last known stand until new ones.

    Times are seconds of one steady clock.
    """

    def __init__(self) -> None:
        self._starts: deque[Start] = deque(maxlen=_MOST)
        self._newest_at: float | None = None
        self._known: Quantiles | None = None
        self._fit: SpawnFit | None = None
        self._fresh = True

    def add(self, seconds: float, together: int, now: float) -> None:
        """A worker is ready, so long after its command.

        Raises:
            ValueError: that is no duration.
        """
        if not (isfinite(seconds) and 0 <= seconds <= _MOST_SECONDS):
            raise ValueError(
                f"expected seconds from command to ready, 0 to {_MOST_SECONDS:g}, found {seconds}"
            )
        while self._starts and self._starts[0].at <= now - _WINDOW_SECONDS:
            self._starts.popleft()
        self._starts.append(Start(now, seconds, min(max(together, 1), _MOST_TOGETHER)))
        self._newest_at, self._fresh = now, False

    def remember(self, known: Quantiles | None, fit: SpawnFit | None, at: float | None) -> None:
        """What was known before this process, the newest of it from ``at``."""
        if not self._starts:
            self._known, self._fit, self._newest_at = known, fit, at

    def quantiles(self, now: float) -> Quantiles | None:
        """Of all starts, however many were together; None before the first."""
        self._refresh()
        if self._known is None or self._newest_at is None:
            return self._known
        return replace(self._known, age_seconds=max(now - self._newest_at, 0.0))

    def fit(self) -> SpawnFit | None:
        """By how many start together; None before the first start."""
        self._refresh()
        return self._fit

    def _refresh(self) -> None:
        if self._fresh:
            return
        seconds = sorted(start.seconds for start in self._starts)
        squares = sum(each * each for each in seconds)
        self._known, self._fit = summary(seconds, sum(seconds), squares), fit(self._starts)
        self._fresh = True


def fit(starts: Sequence[Start]) -> SpawnFit:
    """A straight line through at least one start; flat where a slope does not show."""
    slope = _slope(starts)
    alone = sorted(max(each.seconds - slope * (each.together - 1), 0.0) for each in starts)
    return SpawnFit(
        mean_seconds=sum(alone) / len(alone),
        p95_seconds=quantile(alone, 0.95),
        p99_seconds=quantile(alone, 0.99),
        contention_seconds=slope,
        most_together=max(each.together for each in starts),
    )


def _slope(starts: Sequence[Start]) -> float:
    """Least squares, at least 0; 0 below two standard errors."""
    count = len(starts)
    if count < 3:
        return 0.0
    middle = sum(each.together for each in starts) / count
    mean = sum(each.seconds for each in starts) / count
    spread = sum((each.together - middle) ** 2 for each in starts)
    if not spread:
        return 0.0
    slope = sum((each.together - middle) * (each.seconds - mean) for each in starts) / spread
    left = (each.seconds - mean - slope * (each.together - middle) for each in starts)
    error = sqrt(sum(each * each for each in left) / (count - 2) / spread)
    return slope if slope > _CERTAIN * error else 0.0
