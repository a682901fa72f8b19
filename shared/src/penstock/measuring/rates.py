"""Arrival rate, trend and forecast from counts, with noise kept apart from change.

The window is split where the rate changed: at the cut that two Poisson rates explain best, then
again within the newer part, until what is left is steady. Its mean is the rate. (Binary
segmentation, Scott & Knott 1974, by the likelihood ratio of two Poisson counts.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import accumulate
from math import copysign, log, sqrt
from operator import sub
from typing import NamedTuple

SIGNIFICANT = 4.2
"""Signed root of the likelihood ratio that is called a change. Looked at each second, at up to 60
cuts, Poisson noise reaches it about once a day; a batch dispatched at once, of any size, never."""
_SURELY_NONE = 0.99 * SIGNIFICANT * SIGNIFICANT / 2
"""Of Pearson's chi-squared: below this no likelihood ratio reaches `SIGNIFICANT`; the hundredth is
for rounding."""
_SURELY_FLAT = 0.8
"""Of a squared certainty that matters; the fifth is for rounding, far along a steady clock."""
_GAP_SHARE, _SHORT_SHARE = 0.001, 0.1
"""Of a stretch and of the window: gaps and stretches for which the bound does not hold."""
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
        parts = _Parts(self._intervals)
        length, change = self._steady(parts)
        arrivals, seconds = parts.arrivals[length - 1], parts.seconds[length - 1]
        if seconds > self.window_seconds * _TREND_SHARE:
            change = 0.0
        slope = certainty = 0.0
        if change >= 0 and self._may_slope(length, parts, change):  # down is down, however steep
            slope, certainty = self._slope(length, parts)
        return _Steady(arrivals / seconds, seconds, change, slope, certainty)

    def _steady(self, parts: _Parts) -> tuple[int, float]:
        """How many of the newest intervals have one rate, and the change before (0: none)."""
        change = 0.0
        length = len(parts.seconds)
        first = bisect_left(parts.seconds, (_SHORTEST - 0.5) * self._bucket_seconds)
        while True:
            best, at = 0.0, 0
            for index in self._suspects(parts, first, length):
                score = self._change(parts, index, length)
                if abs(score) > abs(best):
                    best, at = score, index + 1
            if not best:
                return length, change
            length, change = at, best

    def _suspects(self, parts: _Parts, first: int, length: int) -> Iterator[int]:
        """The cuts at which a change may be found, by a bound that takes no logarithm.

        As ln x ≤ x - 1, the likelihood ratio of two Poisson counts is at most twice Pearson's
        chi-squared. Nearly every cut is ruled out by it, in a tenth of the time.
        """
        arrivals, seconds = parts.arrivals, parts.seconds
        all_arrivals, all_seconds = arrivals[length - 1], seconds[length - 1]
        least_older = self._bucket_seconds / 2
        bound = _SURELY_NONE * all_arrivals
        for index in range(first, length - 1):
            newer, newer_seconds = arrivals[index], seconds[index]
            older_seconds = all_seconds - newer_seconds
            if older_seconds < least_older:  # and those of the further cuts are shorter still
                return
            apart = newer * older_seconds - (all_arrivals - newer) * newer_seconds
            if apart * apart > bound * newer_seconds * older_seconds:
                yield index

    def _change(self, parts: _Parts, index: int, length: int) -> float:
        """Signed root of the likelihood ratio of a cut; 0 where it means nothing.

        Divided by the dispersion within the parts: where arrivals come in batches, more is noise.
        """
        newer, seconds = parts.arrivals[index], parts.seconds[index]
        older = parts.arrivals[length - 1] - newer
        older_seconds = parts.seconds[length - 1] - seconds
        rate, before = newer / seconds, older / older_seconds
        if abs(rate - before) <= _WORTH_NOTING * before:
            return 0.0
        common = (newer + older) / (seconds + older_seconds)
        ratio = 2 * (_gain(newer, rate / common) + _gain(older, before / common))
        if ratio <= SIGNIFICANT * SIGNIFICANT:
            return 0.0
        squares = parts.squares[index]
        older_squares = parts.squares[length - 1] - squares
        dispersion = max(
            1.0,
            self._dispersion(newer, seconds, squares),
            self._dispersion(older, older_seconds, older_squares),
        )
        score = sqrt(ratio / dispersion)
        return copysign(score, rate - before) if score > SIGNIFICANT else 0.0

    def _dispersion(self, arrivals: float, seconds: float, squares: float) -> float:
        """Pearson's chi-squared over its degrees of freedom: 1 for a Poisson process."""
        if not arrivals:
            return 1.0
        freedom = max(seconds / self._bucket_seconds - 1, 1.0)
        return (squares * seconds / arrivals - arrivals) / freedom

    def _may_slope(self, length: int, parts: _Parts, change: float) -> bool:
        """Whether the slope may be certain enough to matter; nearly never, in a fifth of its time.

        By a bound: without the dispersion, which only lowers the certainty, and over one span
        without gaps, whose spread is a twelfth of its cube.
        """
        arrivals, seconds = parts.arrivals[length - 1], parts.seconds[length - 1]
        spans = parts.spans if length == len(parts.spans) else parts.spans[:length]
        oldest, newest = spans[-1][0], spans[0][1]
        gaps = abs(newest - oldest - seconds) > _GAP_SHARE * seconds
        if gaps or seconds < _SHORT_SHARE * self.window_seconds:
            return True
        twice_moment = sum([count * (start + end) for start, end, count in spans])
        twice_moment -= arrivals * (oldest + newest)
        least = _FORECAST_CERTAINTY if change else SIGNIFICANT
        return 3 * twice_moment * twice_moment > (
            _SURELY_FLAT * least * least * arrivals * seconds * seconds
        )

    def _slope(self, length: int, parts: _Parts) -> tuple[float, float]:
        """Growth of the rate per second within the newest intervals, and over its error."""
        arrivals, seconds = parts.arrivals[length - 1], parts.seconds[length - 1]
        spans = parts.spans[:length]
        starts, ends = [start for start, _, _ in spans], [end for _, end, _ in spans]
        middle = sum(_differences(starts, ends, lambda at: at * at)) / (2 * seconds)
        spread = sum(_differences(starts, ends, lambda at: (at - middle) ** 3)) / 3
        if not spread or not arrivals:
            return 0.0, 0.0
        moments = [count * ((start + end) / 2 - middle) for start, end, count in spans if count]
        slope = sum(moments) / spread
        dispersion = self._dispersion(arrivals, seconds, parts.squares[length - 1])
        variance = arrivals / seconds / spread * max(1.0, dispersion)
        return slope, slope / sqrt(variance)


class _Parts:
    """Sums over the newest interval, the newest two, and so on.

    Attributes:
        spans: the intervals, the newest first.
        arrivals: by so many intervals.
        seconds: likewise.
    """

    def __init__(self, intervals: deque[tuple[float, float, int]]) -> None:
        self.spans = list(reversed(intervals))
        self.arrivals = list(accumulate([count for _, _, count in self.spans]))
        self.seconds = list(accumulate([end - start for start, end, _ in self.spans]))

    @cached_property
    def squares(self) -> list[float]:
        """Sums of count² / seconds: what the dispersion needs, where a change is suspected."""
        return list(accumulate([count * count / (end - start) for start, end, count in self.spans]))


def _differences(
    starts: list[float], ends: list[float], power: Callable[[float], float]
) -> Iterator[float]:
    """Of a power at the end and at the start of each interval, the newest first."""
    before = [power(start) for start in starts]
    if starts[:-1] == ends[1:]:  # as nearly always: each ends where the newer one starts
        return map(sub, [power(ends[0]), *before], before)
    return map(sub, [power(end) for end in ends], before)


def _trend(change: float, slope_certainty: float) -> str:
    """Of a step where there was one, else of a slow ramp."""
    if change:
        return "up" if change > 0 else "down"
    if abs(slope_certainty) > SIGNIFICANT:
        return "up" if slope_certainty > 0 else "down"
    return "stable"


def _gain(count: float, ratio: float) -> float:
    return count * log(ratio) if count else 0.0
