"""Metrics as Prometheus reads them: plain text, or OpenMetrics, which carries exemplars."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, repeat

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as SampleExemplar

from penstock.telemetry.meters import Exemplar, Meters, Reading, Spread
from penstock.telemetry.metric import Metric

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
Bucket = tuple[str, float] | tuple[str, float, SampleExemplar]


class Exposition(Collector):
    """The page that is scraped."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def page(self, accept: str) -> tuple[str, bytes]:
        """Content type and text, in the format that the reader's ``Accept`` header asks for."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def collect(self) -> Iterable[Family]:
        families: dict[str, Family] = {}
        for sample in self._meters.samples():
            name = sample.metric.name
            # samples of one metric may come from several sources: they make one family
            family = families.get(name) or families.setdefault(name, _family(sample.metric))
            if isinstance(family, HistogramMetricFamily):
                if isinstance(sample, Spread):
                    family.add_metric(sample.labels, _buckets(sample), sample.total)
            elif isinstance(sample, Reading):
                family.add_metric(sample.labels, sample.value)
        return families.values()


def _family(metric: Metric) -> Family:
    name, about, labels = metric.prometheus, metric.about, metric.labels
    match metric.kind:
        case "counter":
            return CounterMetricFamily(name, about, labels=labels)
        case "gauge":
            return GaugeMetricFamily(name, about, labels=labels)
    return HistogramMetricFamily(name, about, labels=labels)


def _buckets(spread: Spread) -> list[Bucket]:
    bounds = (*(str(float(bound)) for bound in spread.bounds), "+Inf")
    sums, exemplars = accumulate(spread.counts), spread.exemplars or repeat(None)
    return [
        (bound, float(count), _exemplar(exemplar)) if exemplar else (bound, float(count))
        for bound, count, exemplar in zip(bounds, sums, exemplars, strict=False)
    ]


def _exemplar(exemplar: Exemplar) -> SampleExemplar:
    ids = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
    return SampleExemplar(ids, exemplar.value, exemplar.at)
