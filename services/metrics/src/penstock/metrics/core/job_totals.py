"""What jobs did by function, and what they recorded in metrics of their own, over all pools."""

from __future__ import annotations

from math import isfinite

import msgspec

from penstock.events.worker import FunctionReport, WorkerReport
from penstock.measuring.job_series import JobSeries, is_valid
from penstock.measuring.quantiles import SECONDS_BUCKETS
from penstock.metrics.core.totals import Histogram

OTHER = "other"
"""The function that stands for all beyond the bound."""
_MOST = 2**32
_MOST_BYTES = 2**50
_MOST_SECONDS = 366 * 86_400.0
_MOST_CHARACTERS = 200
"""Of a function's name, as of a job's."""
_UNUSED_SECONDS = 3600.0
"""After so long a function's place is free for another."""
_PEAK_SECONDS = 60.0


class RecentPeak:
    """The largest value of the last minute or two."""

    def __init__(self) -> None:
        self._began_at, self._before, self._now = 0.0, 0, 0

    def add(self, value: int, now: float) -> None:
        """Takes in a value, at ``now`` of a steady clock."""
        if now - self._began_at >= _PEAK_SECONDS:
            self._before, self._now, self._began_at = self.value(now), 0, now
        self._now = max(self._now, value)

    def value(self, now: float) -> int:
        """The largest value now; 0 where there was none."""
        age = now - self._began_at
        if age < _PEAK_SECONDS:
            return max(self._before, self._now)
        return self._now if age < 2 * _PEAK_SECONDS else 0


class FunctionTotals(msgspec.Struct):
    """Attempts of one function in one pool: begun; ended; of these failed. Jobs that are dead.

    Attributes:
        used_at: when it was counted last, of a steady clock.
        is_reported: a worker has run it; else only events name it, which dispatchers can forge.
    """

    peak_memory: RecentPeak
    run: Histogram
    used_at: float
    is_reported: bool = False
    started: int = 0
    finished: int = 0
    failed: int = 0
    dead: int = 0


class JobTotals:
    """Counts since this process began. Bounded, whatever reports say.

    Args:
        most_functions: pairs of pool and function that are counted by name; further ones count as
            `OTHER` of their pool. Functions that workers report take the places of those that only
            events name, and any takes that of one that was not used for an hour.
        most_series: series of jobs' own metrics that are kept.

    Attributes:
        functions: by pool and function.
        series: what jobs recorded in metrics of their own, with the label ``pool``.
        dropped_by_workers: values of such metrics that workers dropped.
    """

    def __init__(self, most_functions: int = 100, most_series: int = 2_000) -> None:
        self._most_functions = most_functions
        self.functions: dict[tuple[str, str], FunctionTotals] = {}
        self.series = JobSeries(most_series)
        self.dropped_by_workers = 0

    def add(self, report: WorkerReport, now: float) -> None:
        """Takes in what a worker's jobs did since its last report.

        Args:
            report: of a worker that is known.
            now: of a steady clock.
        """
        for function, done in report.functions.items():
            totals = self._of(report.pool, function, now, is_reported=True)
            self._add_function(totals, done)
            if 0 < done.peak_memory_bytes < _MOST_BYTES:
                totals.peak_memory.add(done.peak_memory_bytes, now)
        for series in report.series:
            if is_valid(series):
                self.series.merge(series, ("pool", report.pool))
            else:
                self.series.dropped += 1
        self.dropped_by_workers += min(max(report.series_dropped, 0), _MOST)

    def add_dead(self, pool: str, function: str, now: float) -> None:
        """Counts a job that is dead, as an event says.

        Args:
            now: of a steady clock.
        """
        self._of(pool, function, now, is_reported=False).dead += 1

    def _of(self, pool: str, function: str, now: float, is_reported: bool) -> FunctionTotals:
        """The counts of a function, or of `OTHER` where it is no name or has no place."""
        if not 0 < len(function) <= _MOST_CHARACTERS or not function.isprintable():
            function = OTHER
        is_known = (pool, function) in self.functions or function == OTHER
        if not is_known and not self._has_place(now, is_reported):
            function = OTHER
        totals = self.functions.get((pool, function))
        if totals is None:
            totals = FunctionTotals(RecentPeak(), Histogram(), now)
            self.functions[pool, function] = totals
        totals.used_at, totals.is_reported = now, totals.is_reported or is_reported
        return totals

    def _has_place(self, now: float, is_reported: bool) -> bool:
        """Whether there is a place for another function, after one was forgotten if need be."""
        named = [key for key in self.functions if key[1] != OTHER]
        if len(named) < self._most_functions:
            return True
        # first those that only events name, of them the one that is unused for the longest time
        oldest = min(named, key=self._precedence)
        totals = self.functions[oldest]
        is_unused = now - totals.used_at >= _UNUSED_SECONDS
        if is_unused or (is_reported and not totals.is_reported):
            del self.functions[oldest]
            return True
        return False

    def _precedence(self, key: tuple[str, str]) -> tuple[bool, float]:
        return self.functions[key].is_reported, self.functions[key].used_at

    def _add_function(self, totals: FunctionTotals, done: FunctionReport) -> None:
        for name in ("started", "finished", "failed"):
            increase = min(max(getattr(done, name), 0), _MOST)
            setattr(totals, name, getattr(totals, name) + increase)
        counts = [0] * (len(SECONDS_BUCKETS) + 1)
        for bucket, attempts in done.run_buckets:
            if 0 <= bucket < len(counts):
                counts[bucket] += min(max(attempts, 0), _MOST)
        seconds = done.run_sum_seconds
        if isfinite(seconds) and 0 <= seconds <= _MOST_SECONDS * max(sum(counts), 1):
            totals.run.add(counts, seconds)
