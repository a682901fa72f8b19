"""What jobs count by function and record themselves, as Prometheus and a collector get it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from tests.integration.otlp import Collector

from penstock.events.worker import FunctionReport, SeriesReport, WorkerReport
from penstock.measuring.job_series import JobSeries, SeriesKey, reported
from penstock.metrics.core.job_totals import JobTotals
from penstock.metrics.job_gauges import JobReadings
from penstock.telemetry.exposition import Exposition
from penstock.telemetry.meters import Meters
from penstock.telemetry.otlp.metric_posts import MetricPosts
from penstock.telemetry.otlp.posting import MetricPost


def histogram(name: str, *values: float) -> SeriesReport:
    series = JobSeries(1)
    for value in values:
        series.record(SeriesKey(name, "histogram", ()), value)
    [one] = series
    return reported(*one)


@pytest.fixture
def meters() -> Meters:
    jobs = JobTotals()
    done = FunctionReport(
        started=3,
        finished=2,
        failed=1,
        run_sum_seconds=0.3,
        run_buckets=((4, 2),),
        peak_memory_bytes=7,
    )
    recorded = (
        SeriesReport("rows_loaded", "counter", (("table", "orders"),), 5.0),
        SeriesReport("rows_loaded", "counter", (("source", 'a"b'),), 2.0),
        SeriesReport("queue_depth", "gauge", (), -1.5),
        histogram("batch_rows", 3, 700),
    )
    jobs.add(
        WorkerReport(
            worker="w1",
            host="a",
            pool="mails",
            pid=1,
            state="busy",
            number=1,
            at=1.0,
            started_at=0.0,
            functions={"shop.load": done},
            series=recorded,
            series_dropped=4,
        ),
        time.monotonic(),
    )
    meters = Meters()
    meters.read(JobReadings(jobs))
    return meters


def test_prometheus_reads_them(meters: Meters) -> None:
    _, page = Exposition(meters).page("")
    lines = page.decode().splitlines()
    assert 'rows_loaded_total{pool="mails",source="",table="orders"} 5.0' in lines
    assert 'rows_loaded_total{pool="mails",source="a\\"b",table=""} 2.0' in lines
    assert "# TYPE queue_depth gauge" in lines
    assert 'queue_depth{pool="mails"} -1.5' in lines
    assert 'batch_rows_bucket{le="5.0",pool="mails"} 1.0' in lines
    assert 'batch_rows_bucket{le="+Inf",pool="mails"} 2.0' in lines
    assert 'batch_rows_sum{pool="mails"} 703.0' in lines
    for name, value in {"started": 3, "completed": 1, "failed": 1}.items():
        labels = 'function="shop.load",pool="mails"'
        found = f"penstock_function_{name}_total{{{labels}}} {value:.1f}"
        assert found in lines or found.replace(labels, 'pool="mails",function="shop.load"') in lines
    assert any(line.startswith("penstock_function_run_seconds_bucket") for line in lines)
    assert any(
        line.startswith("penstock_function_peak_memory_bytes{") and line.endswith(" 7.0")
        for line in lines
    )
    assert 'penstock_jobs_metric_values_dropped_total{where="worker"} 4.0' in lines


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def test_a_collector_receives_them(meters: Meters, collector: Collector) -> None:
    post = MetricPost(f"{collector.endpoint}/v1/metrics")
    MetricPosts(post, Resource.create({}), meters, every_seconds=3600).shutdown()
    [request] = collector.metrics
    received: dict[str, Any] = {
        metric.name: metric
        for group in request.resource_metrics
        for metric in group.scope_metrics[0].metrics
    }
    by_labels = {
        tuple(sorted((one.key, one.value.string_value) for one in point.attributes)): point
        for point in received["rows_loaded"].sum.data_points
    }
    orders = (("pool", "mails"), ("source", ""), ("table", "orders"))
    assert by_labels[orders].as_double == 5
    assert received["rows_loaded"].sum.is_monotonic
    assert received["queue_depth"].gauge.data_points[0].as_double == -1.5
    [sizes] = received["batch_rows"].histogram.data_points
    assert (sizes.count, sizes.sum) == (2, 703)
    assert len(sizes.bucket_counts) == len(sizes.explicit_bounds) + 1
    [runs] = received["penstock.function.run"].histogram.data_points
    assert runs.count == 2
