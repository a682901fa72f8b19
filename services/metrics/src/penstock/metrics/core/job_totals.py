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
_MOST_SECONDS = 366 * 86_400.0


class FunctionTotals(msgspec.Struct):
    """Attempts of one function in one pool: begun; ended; of these failed. Jobs that are dead."""

    run: Histogram
    started: int = 0
    finished: int = 0
    failed: int = 0
    dead: int = 0


class JobTotals:
    """Counts since this process began. Bounded, whatever reports say.

    Args:
        most_functions: pairs of pool and function that are counted by name; further ones count as
            `OTHER` of their pool.
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

    def add(self, report: WorkerReport) -> None:
        """Takes in what a worker's jobs did since its last report."""
        for function, done in report.functions.items():
            self._add_function(self.of(report.pool, function), done)
        for series in report.series:
            if is_valid(series):
                self.series.merge(series, ("pool", report.pool))
            else:
                self.series.dropped += 1
        self.dropped_by_workers += min(max(report.series_dropped, 0), _MOST)

    def of(self, pool: str, function: str) -> FunctionTotals:
        """The counts of a function, or of `OTHER` where there are as many as there may be."""
        if (pool, function) not in self.functions and len(self.functions) >= self._most_functions:
            function = OTHER
        return self.functions.setdefault((pool, function), FunctionTotals(run=Histogram()))

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
