"""Metrics and log lines by OTLP, as a real receiver gets them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.otlp import Collector
from tests.waiting import eventually

from penstock import telemetry
from penstock.config import load
from penstock.telemetry import metrics
from penstock.telemetry.job_lines import ERROR_TYPE, TRACEBACK, RunningJob
from penstock.telemetry.meters import Exemplar, Meters, Reading, Spread

log = logging.getLogger("penstock.test")


@contextmanager
def sending(endpoint: str, meters: Meters, **flags: Any) -> Iterator[None]:
    flags |= {"endpoint": endpoint, "metrics_seconds": 0.1}
    settings = load(
        environment={}, flags={f"telemetry.{name}": value for name, value in flags.items()}
    )
    shutdown = telemetry.setup("penstock-test", "one", settings, meters)
    try:
        yield
    finally:
        shutdown()


def newest(collector: Collector, name: str) -> Any:
    """The last data of a metric, once it has come."""
    for request in reversed(collector.metrics):
        for group in request.resource_metrics:
            for metric in group.scope_metrics[0].metrics:
                if metric.name == name:
                    return metric
    return None


async def test_counters_gauges_and_histograms_arrive_with_names_units_and_labels() -> None:
    meters = Meters()
    meters.read(lambda: [Reading(metrics.WAITING, 4, ("emails",))])
    meters.count(metrics.SNAPSHOTS, "emails", by=2)
    meters.observe(metrics.ROUND, 0.02)
    with Collector() as collector, sending(collector.endpoint, meters):
        histogram = await eventually(lambda: newest(collector, "penstock.decider.round"))
        counter, gauge = newest(collector, "penstock.snapshots"), newest(collector, WAITING)
        resource = collector.metrics[0].resource_metrics[0].resource
    assert (gauge.unit, gauge.gauge.data_points[0].as_double) == ("{job}", 4)
    assert gauge.gauge.data_points[0].attributes[0].value.string_value == "emails"
    assert counter.sum.is_monotonic
    assert counter.sum.data_points[0].as_double == 2
    point = histogram.histogram.data_points[0]
    assert (point.count, point.sum, sum(point.bucket_counts)) == (1, 0.02, 1)
    named = {each.key: each.value.string_value for each in resource.attributes}
    assert named["service.name"] == "penstock-test"


WAITING = "penstock.pool.jobs.waiting"


async def test_a_pickup_times_exemplar_names_its_trace() -> None:
    meters = Meters()
    exemplars = [Exemplar("ab" * 16, "cd" * 8, 0.2, time.time())] + [None] * 16
    spread = Spread(metrics.PICKUP, [1] + [0] * 16, 0.2, ("emails",), exemplars)
    meters.read(lambda: [spread])
    with Collector() as collector, sending(collector.endpoint, meters):
        found = await eventually(lambda: newest(collector, "penstock.job.pickup"))
    (exemplar,) = found.histogram.data_points[0].exemplars
    assert (exemplar.trace_id.hex(), exemplar.as_double) == ("ab" * 16, 0.2)


async def test_a_log_line_carries_the_trace_it_was_said_in() -> None:
    with Collector() as collector:
        with sending(collector.endpoint, Meters()):
            with telemetry.span("run f") as span:
                log.warning("half-way, %d of %d", 1, 2)
                said_in = telemetry.trace_id(span)
                headers = telemetry.inject()
            with telemetry.within(headers):
                log.warning("elsewhere, the same story")
            log.warning("on its own")
            try:
                raise KeyError("x")
            except KeyError:
                log.exception("failed")
        lines = {line.body.string_value: line for line in received(collector)}
    assert lines["half-way, 1 of 2"].trace_id.hex() == said_in
    assert lines["elsewhere, the same story"].trace_id.hex() == said_in
    assert lines["on its own"].trace_id == b""
    assert lines["half-way, 1 of 2"].severity_text == "WARNING"
    attributes = {one.key: one.value.string_value for one in lines["failed"].attributes}
    assert "KeyError: 'x'" in attributes["exception.stacktrace"]


async def test_a_line_of_a_job_carries_the_job_and_the_trace_of_its_dispatch() -> None:
    running = RunningJob("j-1", 2, "shop.send", "mails-1", "ab" * 16)
    failure = {**running.extra(), ERROR_TYPE: "ValueError", TRACEBACK: "Traceback: one"}
    with Collector() as collector:
        with sending(collector.endpoint, Meters()):
            with running:
                log.warning("half-way")
            log.warning("it failed", extra=failure)
        lines = {line.body.string_value: line for line in received(collector)}
    for line in lines.values():
        attributes = {one.key: one.value for one in line.attributes}
        assert attributes["penstock.job.id"].string_value == "j-1"
        assert attributes["penstock.job.attempt"].int_value == 2
        assert attributes["penstock.job.function"].string_value == "shop.send"
        assert attributes["penstock.worker"].string_value == "mails-1"
        assert line.trace_id.hex() == "ab" * 16
    failed = {one.key: one.value.string_value for one in lines["it failed"].attributes}
    assert failed["error.type"] == "ValueError"
    assert failed["exception.stacktrace"] == "Traceback: one"


def received(collector: Collector) -> Iterator[Any]:
    for request in collector.logs:
        for group in request.resource_logs:
            for scope in group.scope_logs:
                yield from scope.log_records


async def test_what_is_not_asked_for_is_not_sent() -> None:
    meters = Meters()
    meters.count(metrics.COMMANDS)
    with Collector() as collector:
        with sending(collector.endpoint, meters, signals=("traces",)):
            telemetry.start("run f").end()
            log.warning("a line")
        collector.wait_for("run f")
        assert (collector.metrics, collector.logs) == ([], [])


def test_a_collector_that_hangs_holds_nobody_up() -> None:
    meters = Meters()
    meters.count(metrics.COMMANDS)
    with Collector(hang=True) as collector:
        began = time.monotonic()
        with sending(collector.endpoint, meters):
            for n in range(5_000):  # more than the queue of lines holds
                log.warning("line %d", n)
                meters.count(metrics.COMMANDS)
            worked = time.monotonic() - began
        waited = time.monotonic() - began - worked
    assert worked < 5
    assert waited < 3


def test_after_the_end_no_line_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    with Collector() as collector:
        before = list(logging.getLogger().handlers)
        with sending(collector.endpoint, Meters()):
            pass
        assert logging.getLogger().handlers == before
