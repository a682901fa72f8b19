"""Arrival rate, trend and forecast from counts, with noise kept apart from change.

The window is split where the rate changed: at the cut that two Poisson rates explain best, then
again within the newer part, until what is left is steady. Its mean is the rate. (Binary
segmentation, Scott & Knott 1974, by the likelihood ratio of two Poisson counts.)
"""

from __future__ import annotations

from collections import deque
from itertools import accumulate
from math import copysign, log, sqrt
from typing import NamedTuple

SIGNIFICANT = 4.2
"""Signed root of the likelihood ratio that is called a change. Looked at each second, at up to 60
cuts, Poisson noise reaches it about once a day; a batch dispatched at once, of any size, never."""
_SHORTEST = 4
"""A rate is judged over this many buckets at least: with fewer, a batch looks like a rate."""
_WORTH_NOTING = 0.1
"""A smaller relative change is none, however certain it is."""
_TREND_SHARE = 1 / 3
"""A change is a trend for this share of the window."""
_FORECAST_LIMIT = 2.0
_FORECAST_CERTAINTY = 2.0
"""A slope steeper than this many standard errors is extrapolated."""


class Rate(NamedTuple):
    """Arrivals per second now.

    ``trend``: up, down or stable; ``window_seconds``: how long the rate has been steady.
    """

    per_second: float
    trend: str
    forecast_per_second: float | None
    window_seconds: float


class _Sums(NamedTuple):
    """Of the intervals from the newest back to some age: what likelihood and dispersion need."""

    arrivals: float
    seconds: float
    squares: float
    """Sum of count² / seconds."""

    def less(self, other: _Sums) -> _Sums:
        return _Sums(
            self.arrivals - other.arrivals,
            self.seconds - other.seconds,
            self.squares - other.squares,
        )


class _Steady(NamedTuple):
    """The newest stretch of one rate.

    ``change``: to the one before, 0 for none. ``slope``: growth of the rate per second within it;
    ``certainty``: that over its error.
    """

    per_second: float
    seconds: float
    change: float
    slope: float
    certainty: float


class RateWindow:
    """Counts of observed intervals over the last ``window_seconds``; gaps are no zeros.

    Quiet stretches are kept as one interval, so that an idle pool costs next to nothing.

    Args:
        bucket_seconds: shorter intervals are put together to about this; 0: a 60th of the window.
    """

    def __init__(self, window_seconds: float, bucket_seconds: float = 0.0) -> None:
        self.window_seconds = window_seconds
        self._bucket_seconds = max(bucket_seconds, window_seconds / 60)
        self._intervals: deque[tuple[float, float, int]] = deque()
        self._steady_now: _Steady | None = None

    def add(self, start: float, end: float, count: int) -> None:
        """``count`` arrivals were seen in (start, end], seconds of any steady clock."""
        if end <= start:
            return
        self._steady_now = None
        if self._intervals:
            first, last, before = self._intervals[-1]
            quiet = not count and not before
            if last == start and (quiet or end - first <= self._bucket_seconds):
                self._intervals.pop()
                start, count = first, count + before
        self._intervals.append((start, end, count))
        oldest = end - self.window_seconds
        while self._intervals[0][1] <= oldest:
            self._intervals.popleft()
        first, last, count = self._intervals[0]
        if first < oldest and not count:
            self._intervals[0] = (oldest, last, count)

    def mean_per_second(self) -> float | None:
        """Over all that the window holds; None before anything was observed."""
        if not self._intervals:
            return None
        seconds = sum(end - start for start, end, _ in self._intervals)
        return sum(count for _, _, count in self._intervals) / seconds

    def rate(self, horizon_seconds: float) -> Rate | None:
        """The rate now; None before anything was observed.

        Args:
            horizon_seconds: how far ahead a forecast looks.
        """
        if not self._intervals:
            return None
        self._steady_now = steady = self._steady_now or self._look()
        trend = _trend(steady.change, steady.certainty)
        if trend != "up" or steady.certainty < _FORECAST_CERTAINTY:
            return Rate(steady.per_second, trend, None, steady.seconds)
        ahead = steady.per_second + steady.slope * (steady.seconds / 2 + horizon_seconds)
        forecast = min(ahead, _FORECAST_LIMIT * steady.per_second)
        return Rate(steady.per_second, trend, forecast, steady.seconds)

    def _look(self) -> _Steady:
        sums = self._sums()
        length, change = self._steady(sums)
        steady = sums[length - 1]
        if steady.seconds > self.window_seconds * _TREND_SHARE:
            change = 0.0
        slope, certainty = self._slope(length, steady)
        return _Steady(steady.arrivals / steady.seconds, steady.seconds, change, slope, certainty)

    def _sums(self) -> list[_Sums]:
        """Newest first: sums over the newest interval, the newest two, and so on."""
        spans = [(count, end - start) for start, end, count in reversed(self._intervals)]
        return [
            _Sums(count, seconds, squares)
            for count, seconds, squares in zip(
                accumulate(count for count, _ in spans),
                accumulate(seconds for _, seconds in spans),
                accumulate(count * count / seconds for count, seconds in spans),
                strict=True,
            )
        ]

    def _steady(self, sums: list[_Sums]) -> tuple[int, float]:
        """How many of the newest intervals have one rate, and the change before (0: none)."""
        length, change = len(sums), 0.0
        while True:
            whole, best, at = sums[length - 1], 0.0, 0
            for index in range(length - 1):
                newer = sums[index]
                if newer.seconds >= (_SHORTEST - 0.5) * self._bucket_seconds:
                    score = self._change(newer, whole.less(newer))
                    if abs(score) > abs(best):
                        best, at = score, index + 1
            if not best:
                return length, change
            length, change = at, best

    def _change(self, newer: _Sums, older: _Sums) -> float:
        """Signed root of the likelihood ratio; 0 where it means nothing.

        Divided by the dispersion within the parts: where arrivals come in batches, more is noise.
        """
        if older.seconds < self._bucket_seconds / 2 or not newer.arrivals + older.arrivals:
            return 0.0
        rate, before = newer.arrivals / newer.seconds, older.arrivals / older.seconds
        if abs(rate - before) <= _WORTH_NOTING * before:
            return 0.0
        common = (newer.arrivals + older.arrivals) / (newer.seconds + older.seconds)
        ratio = 2 * (_gain(newer.arrivals, rate / common) + _gain(older.arrivals, before / common))
        if ratio <= SIGNIFICANT * SIGNIFICANT:
            return 0.0
        dispersion = max(1.0, self._dispersion(newer), self._dispersion(older))
        score = sqrt(ratio / dispersion)
        return copysign(score, rate - before) if score > SIGNIFICANT else 0.0

    def _dispersion(self, part: _Sums) -> float:
        """Pearson's chi-squared over its degrees of freedom: 1 for a Poisson process."""
        if not part.arrivals:
            return 1.0
        freedom = max(part.seconds / self._bucket_seconds - 1, 1.0)
        return (part.squares * part.seconds / part.arrivals - part.arrivals) / freedom

    def _slope(self, length: int, steady: _Sums) -> tuple[float, float]:
        """Growth of the rate per second within the newest intervals, and over its error."""
        spans = [self._intervals[-1 - index] for index in range(length)]
        middle = sum(end * end - start * start for start, end, _ in spans) / (2 * steady.seconds)
        spread = sum((end - middle) ** 3 - (start - middle) ** 3 for start, end, _ in spans) / 3
        if not spread or not steady.arrivals:
            return 0.0, 0.0
        slope = sum(count * ((start + end) / 2 - middle) for start, end, count in spans) / spread
        variance = steady.arrivals / steady.seconds / spread * max(1.0, self._dispersion(steady))
        return slope, slope / sqrt(variance)


def _trend(change: float, slope_certainty: float) -> str:
    """Of a step where there was one, else of a slow ramp."""
    if change:
        return "up" if change > 0 else "down"
    if abs(slope_certainty) > SIGNIFICANT:
        return "up" if slope_certainty > 0 else "down"
    return "stable"


def _gain(count: float, ratio: float) -> float:
    return count * log(ratio) if count else 0.0
