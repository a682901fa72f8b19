"""What jobs record in metrics of their own, kept by the worker until its next report."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

from penstock.events.worker import SeriesReport
from penstock.measuring.job_series import (
    JobSeries,
    Kind,
    SeriesKey,
    checked_labels,
    checked_name,
    reported,
)

log = logging.getLogger("penstock.worker")

MAX_SERIES = 200
"""Series of one worker's jobs, over its whole life."""
MAX_REPORT_BYTES = 65_536
"""What series take in one report, about; those beyond it go with the next one."""
_BYTES_BESIDE_TEXT = 80
_BYTES_OF_BUCKET = 12


class JobMetrics:
    """See :class:`penstock.jobs.running.context.JobMetrics`; one for all jobs of a worker.

    Called by the threads of jobs, and read by the worker's loop.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._series_keys: set[SeriesKey] = set()
        self._pending = JobSeries(MAX_SERIES)
        self._dropped = 0
        self._warned = False

    # --- for jobs ---------------------------------------------------------------------------------
    def counter(self, name: str, by: float = 1, labels: Mapping[str, object] | None = None) -> None:
        if by < 0:
            raise ValueError(f"counter {name!r}: found {by:g}, expected 0 or more; use a gauge")
        self._record("counter", name, by, labels)

    def gauge(self, name: str, value: float, labels: Mapping[str, object] | None = None) -> None:
        self._record("gauge", name, value, labels)

    def histogram(
        self, name: str, value: float, labels: Mapping[str, object] | None = None
    ) -> None:
        self._record("histogram", name, value, labels)

    def _record(
        self, kind: Kind, name: str, value: float, labels: Mapping[str, object] | None
    ) -> None:
        key = SeriesKey(checked_name(name), kind, checked_labels(labels or {}))
        number = float(value)
        with self._guard:
            recorded = self._may_have(key) and self._pending.record(key, number)
            if recorded:
                return
            self._dropped += 1
            warned, self._warned = self._warned, True
        if not warned:
            log.warning(
                "metric %r: a value is dropped (%d series at most in a worker, one kind for a "
                "name, finite numbers); further ones are only counted, in "
                "penstock_jobs_metric_values_dropped_total",
                name,
                MAX_SERIES,
            )

    def _may_have(self, key: SeriesKey) -> bool:
        if key not in self._series_keys and len(self._series_keys) < MAX_SERIES:
            other_kinds = any(
                one.name == key.name and one.kind != key.kind for one in self._series_keys
            )
            if not other_kinds:
                self._series_keys.add(key)
        return key in self._series_keys

    # --- for the worker's report ------------------------------------------------------------------
    def take(self) -> tuple[tuple[SeriesReport, ...], int]:
        """What was recorded since the last call, and how many values were dropped."""
        with self._guard:
            pending, self._pending = self._pending, JobSeries(MAX_SERIES)
            dropped, self._dropped = self._dropped, 0
        taken = [reported(key, series) for key, series in pending]
        fitting, size = 0, 0
        while fitting < len(taken) and (size := size + _size(taken[fitting])) <= MAX_REPORT_BYTES:
            fitting += 1
        self.put_back(taken[fitting:], 0)
        return tuple(taken[:fitting]), dropped

    def put_back(self, reports: Sequence[SeriesReport], dropped: int) -> None:
        """The report with these could not be published: they go with the next one."""
        if not reports and not dropped:
            return
        with self._guard:
            newer, self._pending = self._pending, JobSeries(MAX_SERIES)
            for report in reports:
                self._pending.merge(report)
            for key, series in newer:  # after the older ones: a gauge's last value stands
                self._pending.merge(reported(key, series))
            self._dropped += dropped


def _size(report: SeriesReport) -> int:
    """Of a series as JSON, roughly."""
    text = len(report.name) + sum(len(name) + len(value) + 8 for name, value in report.labels)
    return text + _BYTES_BESIDE_TEXT + _BYTES_OF_BUCKET * len(report.buckets)
