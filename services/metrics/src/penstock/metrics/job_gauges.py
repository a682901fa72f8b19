"""What jobs did by function, and their own metrics, as the numbers that are scraped."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from penstock.measuring.job_series import VALUE_BUCKETS, Series, SeriesKey
from penstock.metrics.core.job_totals import JobTotals
from penstock.telemetry import metrics
from penstock.telemetry.meters import Reading, Sample, Spread
from penstock.telemetry.metric import Metric


class JobReadings:
    """Of all pools; read by other threads while the service's loop adds to them."""

    def __init__(self, jobs: JobTotals) -> None:
        self._jobs = jobs

    def __call__(self) -> Iterable[Sample]:
        for labels, totals in tuple(self._jobs.functions.items()):
            yield Reading(metrics.FUNCTION_STARTED, totals.started, labels)
            yield Reading(metrics.FUNCTION_COMPLETED, totals.finished - totals.failed, labels)
            yield Reading(metrics.FUNCTION_FAILED, totals.failed, labels)
            yield Reading(metrics.FUNCTION_DEAD, totals.dead, labels)
            if peak := totals.peak_memory.value(time.monotonic()):
                yield Reading(metrics.FUNCTION_PEAK, peak, labels)
            yield Spread(metrics.FUNCTION_RUN, totals.run.counts, totals.run.total, labels)
        series = sorted(self._jobs.series, key=lambda pair: pair[0])
        yield Reading(metrics.SERIES, len(series))
        yield Reading(metrics.VALUES_DROPPED, self._jobs.dropped_by_workers, ("worker",))
        yield Reading(metrics.VALUES_DROPPED, self._jobs.series.dropped, ("service",))
        yield from _recorded(series)


def _recorded(series: list[tuple[SeriesKey, Series]]) -> Iterator[Sample]:
    """The jobs' own metrics. All series of one have the same labels, empty where it lacks one."""
    names: dict[str, set[str]] = {}
    for key, _ in series:
        names.setdefault(key.name, set()).update(label for label, _ in key.labels)
    for key, recorded in series:
        labels = tuple(sorted(names[key.name]))
        metric = Metric(key.name, key.kind, "", "Recorded by jobs.", labels)
        values = dict(key.labels)
        of = tuple(values.get(label, "") for label in labels)
        if key.kind == "histogram":
            yield Spread(metric, tuple(recorded.counts), recorded.value, of, (), VALUE_BUCKETS)
        else:
            yield Reading(metric, recorded.value, of)
