"""Arrival rate, trend and forecast from counts, with Poisson noise kept apart from change."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import sqrt

import msgspec

SIGNIFICANT = 3.0
"""Standard deviations between two windows that are called a change (checked every second)."""
_WORTH_NOTING = 0.1
"""A smaller relative change is no trend, however certain it is."""
_BUCKETS = 60
_SHORTEST, _TREND_RECENT, _TREND_BEFORE = 1 / 15, 1 / 6, 1 / 3
"""Shares of the whole window: the shortest look back, and the two windows a trend compares."""
_FORECAST_LIMIT = 2.0


class Rate(msgspec.Struct, frozen=True):
    """Arrivals per second now; ``trend`` is up, down or stable; ``window_seconds`` it rests on."""

    per_second: float
    trend: str
    forecast_per_second: float | None
    window_seconds: float


class Part(msgspec.Struct, frozen=True):
    """A stretch of the window: its count, the seconds observed, and Pearson's sum of squares."""

    count: float
    seconds: float
    squares: float

    @property
    def per_second(self) -> float:
        return self.count / self.seconds if self.seconds else 0.0


class RateWindow:
    """Counts of observed intervals over the last ``window_seconds``; gaps are no zeros.

    Quiet stretches are kept as one interval, so that an idle pool costs next to nothing.
    """

    def __init__(self, window_seconds: float) -> None:
        self.window_seconds = window_seconds
        self._bucket_seconds = window_seconds / _BUCKETS
        self._intervals: deque[tuple[float, float, int]] = deque()

    def add(self, start: float, end: float, count: int) -> None:
        """``count`` arrivals were seen in (start, end], seconds of any steady clock."""
        if end <= start:
            return
        if self._intervals:
            first, last, before = self._intervals[-1]
            quiet = not count and not before
            if last == start and (quiet or end - first <= self._bucket_seconds):
                self._intervals.pop()
                start, count = first, count + before
        self._intervals.append((start, end, count))
        while self._intervals[0][1] <= end - self.window_seconds:
            self._intervals.popleft()

    def rate(self, horizon_seconds: float) -> Rate | None:
        """The rate now; None before anything was observed.

        The rate is that of the longest recent window over which it did not change: long windows
        when calm, the shortest right after a step (the idea of ADWIN, Bifet & Gavaldà 2007, on
        doubling windows). A batch dispatched at once is no step: its own variance says so.

        Args:
            horizon_seconds: how far ahead a forecast looks.
        """
        if not self._intervals:
            return None
        width = self._steady_seconds()
        part = self._part(0.0, width)
        trend, forecast = self._trend(horizon_seconds)
        return Rate(part.per_second, trend, forecast, part.seconds)

    def mean_per_second(self) -> float | None:
        """Over all that the window holds; None before anything was observed."""
        return self._part(0.0, self.window_seconds).per_second if self._intervals else None

    def _steady_seconds(self) -> float:
        width = self.window_seconds * _SHORTEST
        while width < self.window_seconds:
            wider = min(2 * width, self.window_seconds)
            if abs(self._change(self._part(0.0, width), self._part(width, wider))) > SIGNIFICANT:
                return width
            width = wider
        return self.window_seconds

    def _trend(self, horizon_seconds: float) -> tuple[str, float | None]:
        short = self.window_seconds * _TREND_RECENT
        long = short + self.window_seconds * _TREND_BEFORE
        recent, before = self._part(0.0, short), self._part(short, long)
        change = self._change(recent, before)
        rise = recent.per_second - before.per_second
        if abs(change) <= SIGNIFICANT or abs(rise) <= _WORTH_NOTING * before.per_second:
            return "stable", None
        if change < 0:
            return "down", None
        slope = rise / ((recent.seconds + before.seconds) / 2)
        ahead = recent.per_second + slope * (recent.seconds / 2 + horizon_seconds)
        return "up", min(ahead, _FORECAST_LIMIT * recent.per_second)

    def _change(self, recent: Part, before: Part) -> float:
        """Standard score of the two counts, were their rates the same.

        Conditional binomial test of two Poisson counts (Przyborowski & Wilenski 1940), widened by
        the dispersion within the two parts where arrivals come in batches.
        """
        total = recent.count + before.count
        if not total or not recent.seconds or not before.seconds:
            return 0.0
        share = recent.seconds / (recent.seconds + before.seconds)
        freedom = (recent.seconds + before.seconds) / self._bucket_seconds - 2
        dispersion = max(1.0, (recent.squares + before.squares) / max(freedom, 1.0))
        return (recent.count - total * share) / sqrt(total * share * (1 - share) * dispersion)

    def _part(self, newest: float, oldest: float) -> Part:
        """What was observed between two ages before the newest observation."""
        pieces = list(self._pieces(newest, oldest))
        count = sum(piece[0] for piece in pieces)
        seconds = sum(piece[1] for piece in pieces)
        if not count:
            return Part(0.0, seconds, 0.0)
        mean = count / seconds
        squares = sum((c - mean * s) ** 2 / (mean * s) for c, s in pieces)
        return Part(count, seconds, squares)

    def _pieces(self, newest: float, oldest: float) -> Iterator[tuple[float, float]]:
        end = self._intervals[-1][1]
        for first, last, count in reversed(self._intervals):
            if last <= end - oldest:
                return
            seconds = min(last, end - newest) - max(first, end - oldest)
            if seconds > 1e-9:
                yield count * seconds / (last - first), seconds
