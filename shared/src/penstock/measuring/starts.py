"""Start times of workers: a distribution, and the delay by several that start together."""

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
    """The start of one worker.

    Attributes:
        at: when its event was received.
        seconds: from the command until it was ready.
        together: this one and those starting beside it.
    """

    at: float
    seconds: float
    together: int


class Starts:
    """The starts of the last quarter of an hour, at most 256; older ones count until new ones come.

    Times are seconds of one steady clock.
    """

    def __init__(self) -> None:
        self._starts: deque[Start] = deque(maxlen=_MOST)
        self._newest_at: float | None = None
        self._quantiles: Quantiles | None = None
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

    def remember(self, quantiles: Quantiles | None, fit: SpawnFit | None, at: float | None) -> None:
        """Takes over what an earlier process measured, the newest of it at ``at``."""
        if not self._starts:
            self._quantiles, self._fit, self._newest_at = quantiles, fit, at

    def quantiles(self, now: float) -> Quantiles | None:
        """Of all starts, however many were together; None before the first."""
        self._refresh()
        if self._quantiles is None or self._newest_at is None:
            return self._quantiles
        return replace(self._quantiles, age_seconds=max(now - self._newest_at, 0.0))

    def fit(self) -> SpawnFit | None:
        """By how many start together; None before the first start."""
        self._refresh()
        return self._fit

    def _refresh(self) -> None:
        if self._fresh:
            return
        seconds = sorted(start.seconds for start in self._starts)
        squares = sum(value * value for value in seconds)
        self._quantiles, self._fit = summary(seconds, sum(seconds), squares), fit(self._starts)
        self._fresh = True


def fit(starts: Sequence[Start]) -> SpawnFit:
    """A straight line through at least one start; flat where a slope does not show."""
    slope = _slope(starts)
    alone = sorted(max(start.seconds - slope * (start.together - 1), 0.0) for start in starts)
    return SpawnFit(
        mean_seconds=sum(alone) / len(alone),
        p95_seconds=quantile(alone, 0.95),
        p99_seconds=quantile(alone, 0.99),
        contention_seconds=slope,
        most_together=max(start.together for start in starts),
    )


def _slope(starts: Sequence[Start]) -> float:
    """Least squares, at least 0; 0 below two standard errors."""
    count = len(starts)
    # two starts always lie on a line
    if count < 3:
        return 0.0
    middle = sum(start.together for start in starts) / count
    mean = sum(start.seconds for start in starts) / count
    spread = sum((start.together - middle) ** 2 for start in starts)
    if not spread:
        return 0.0
    slope = sum((start.together - middle) * (start.seconds - mean) for start in starts) / spread
    left = (start.seconds - mean - slope * (start.together - middle) for start in starts)
    error = sqrt(sum(residual * residual for residual in left) / (count - 2) / spread)
    return slope if slope > _CERTAIN * error else 0.0
