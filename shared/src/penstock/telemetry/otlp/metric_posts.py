"""Metrics posted to the collector at an interval, from a thread of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from math import inf

from opentelemetry.sdk.metrics import Exemplar as SentExemplar
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from penstock.telemetry.meters import Exemplar, Meters, Reading, Sample, Spread
from penstock.telemetry.otlp.posting import MetricPost

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_SCOPE = InstrumentationScope("penstock")


class MetricPosts:
    """Posts the meters' samples each ``every_seconds``, and once more at the end."""

    def __init__(
        self, post: MetricPost, resource: Resource, meters: Meters, every_seconds: float
    ) -> None:
        self._post, self._resource, self._meters = post, resource, meters
        self._every_seconds = every_seconds
        self._began = time.time_ns()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry-metrics", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(self._every_seconds):
            self._send()
        self._send()

    def _send(self) -> None:
        self._post.export(
            batch(self._resource, self._meters.samples(), self._began, time.time_ns())
        )

    def shutdown(self) -> None:
        """Posts the last samples; waits for the collector without a limit."""
        self._ending.set()
        self._thread.join()
        self._post.post.shutdown()


def batch(resource: Resource, samples: Sequence[Sample], began: int, now: int) -> MetricsData:
    """Samples in OTLP's terms.

    Args:
        resource: the process.
        samples: of its meters.
        began: when the counters started, nanoseconds of the POSIX clock.
        now: likewise.
    """
    ordered = sorted(samples, key=lambda sample: sample.metric.name)
    metrics = [
        Metric(
            metric.name, metric.about, metric.unit, _points(metric.kind, list(group), began, now)
        )
        for metric, group in groupby(ordered, key=lambda sample: sample.metric)
    ]
    scope = ScopeMetrics(_SCOPE, metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _points(kind: str, samples: Iterable[Sample], began: int, now: int) -> Gauge | Sum | Histogram:
    if kind == "histogram":
        spreads = [_spread(sample, began, now) for sample in samples if isinstance(sample, Spread)]
        return Histogram(spreads, _CUMULATIVE)
    numbers = [_number(sample, began, now) for sample in samples if isinstance(sample, Reading)]
    return Sum(numbers, _CUMULATIVE, is_monotonic=True) if kind == "counter" else Gauge(numbers)


def _number(reading: Reading, began: int, now: int) -> NumberDataPoint:
    return NumberDataPoint(_attributes(reading), began, now, float(reading.value))


def _spread(spread: Spread, began: int, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        _attributes(spread),
        began,
        now,
        count=sum(spread.counts),
        sum=spread.total,
        bucket_counts=list(spread.counts),
        explicit_bounds=list(spread.bounds),
        min=inf,
        max=-inf,
        exemplars=[_exemplar(kept) for kept in spread.exemplars if kept is not None],
    )


def _exemplar(kept: Exemplar) -> SentExemplar:
    at = int(kept.at * 1e9)
    return SentExemplar({}, kept.value, at, int(kept.span_id, 16), int(kept.trace_id, 16))


def _attributes(sample: Sample) -> dict[str, str]:
    """Named as the attributes of spans and logs are."""
    return dict(zip(sample.metric.labels, sample.labels, strict=True))
