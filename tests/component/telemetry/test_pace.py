"""A worker traces so many jobs a second at most; the rest leave no trace at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from penstock import telemetry
from penstock.telemetry import spans
from penstock.telemetry.spans import Pace


def test_the_count_begins_anew_each_second() -> None:
    now = [0.0]
    pace = Pace(2, lambda: now[0])
    assert [pace.exceeded() for _ in range(4)] == [False, False, True, True]
    now[0] = 0.9
    assert pace.exceeded()
    now[0] = 1.0
    assert [pace.exceeded() for _ in range(3)] == [False, False, True]


def test_no_limit() -> None:
    pace = Pace(0)
    assert not any(pace.exceeded() for _ in range(1000))


@pytest.fixture
def kept() -> Iterator[InMemorySpanExporter]:
    """The spans of a process that traces one job a second."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBasedTraceIdRatio(1.0))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.use(provider.get_tracer("test"), traces_per_second=1)
    yield exporter
    spans.use(None)


def test_one_too_many_leaves_no_span_nor_do_those_it_calls(kept: InMemorySpanExporter) -> None:
    assert telemetry.unsampled() is None
    block = telemetry.unsampled()
    assert block
    with block, telemetry.span("spark query"):
        assert telemetry.trace_id() is None
        headers = telemetry.inject()
    assert telemetry.sampled(headers) == ""
    with telemetry.span("run f", parent=headers):
        pass
    assert kept.get_finished_spans() == ()


def test_what_comes_after_it_is_traced_again(kept: InMemorySpanExporter) -> None:
    telemetry.unsampled()
    block = telemetry.unsampled()
    assert block
    with block:
        pass
    with telemetry.span("run g"):
        assert telemetry.trace_id()
    assert [span.name for span in kept.get_finished_spans()] == ["run g"]


@pytest.mark.parametrize("header", ["", "rubbish", "00-" + "0" * 32 + "-" + "1" * 16 + "-01"])
def test_ids_of_what_is_no_trace_parent(header: str) -> None:
    assert telemetry.ids(header) is None


def test_ids_and_sampled() -> None:
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert telemetry.ids(parent) == ("ab" * 16, "cd" * 8)
    assert telemetry.sampled({"traceparent": parent}) == parent
    assert telemetry.sampled({"traceparent": parent[:-1] + "0"}) == ""
    assert telemetry.sampled({}) == ""
