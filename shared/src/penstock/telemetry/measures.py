"""Numbers posted to the collector, again and again, from a thread of their own."""

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

from penstock.measuring.quantiles import SECONDS_BUCKETS
from penstock.telemetry.meters import Exemplar, Meters, Reading, Spread, Told
from penstock.telemetry.posting import MetricPost

_CUMULATIVE = AggregationTemporality.CUMULATIVE
_SCOPE = InstrumentationScope("penstock")


class Measures:
    """Posts what the meters tell each ``every_seconds``, and once more at the end."""

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
        self._post.export(batch(self._resource, self._meters.told(), self._began, time.time_ns()))

    def shutdown(self) -> None:
        """Posts the last numbers; takes as long as that takes."""
        self._ending.set()
        self._thread.join()
        self._post.post.shutdown()


def batch(resource: Resource, told: Sequence[Told], began: int, now: int) -> MetricsData:
    """What was told, in OTLP's terms; ``began`` and ``now``: nanoseconds of the POSIX clock."""
    ordered = sorted(told, key=lambda each: each.metric.name)
    metrics = [
        Metric(each.name, each.about, each.unit, _points(each.kind, list(group), began, now))
        for each, group in groupby(ordered, key=lambda one: one.metric)
    ]
    scope = ScopeMetrics(_SCOPE, metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _points(kind: str, told: Iterable[Told], began: int, now: int) -> Gauge | Sum | Histogram:
    if kind == "histogram":
        spreads = [_spread(each, began, now) for each in told if isinstance(each, Spread)]
        return Histogram(spreads, _CUMULATIVE)
    numbers = [_number(each, began, now) for each in told if isinstance(each, Reading)]
    return Sum(numbers, _CUMULATIVE, is_monotonic=True) if kind == "counter" else Gauge(numbers)


def _number(told: Reading, began: int, now: int) -> NumberDataPoint:
    return NumberDataPoint(_attributes(told), began, now, float(told.value))


def _spread(told: Spread, began: int, now: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        _attributes(told),
        began,
        now,
        count=sum(told.counts),
        sum=told.total,
        bucket_counts=list(told.counts),
        explicit_bounds=list(SECONDS_BUCKETS),
        min=inf,
        max=-inf,
        exemplars=[_exemplar(each) for each in told.exemplars if each is not None],
    )


def _exemplar(found: Exemplar) -> SentExemplar:
    at = int(found.at * 1e9)
    return SentExemplar({}, found.value, at, int(found.span_id, 16), int(found.trace_id, 16))


def _attributes(told: Told) -> dict[str, str]:
    """Named as the attributes of spans and logs are."""
    return dict(zip(told.metric.labels, told.labels, strict=True))
