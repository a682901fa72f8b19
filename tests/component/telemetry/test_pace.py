"""A worker traces so many jobs a second at most; the rest leave no trace at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry import trace
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
    assert [telemetry.beyond_pace() for _ in range(2)] == [False, True]
    with telemetry.unsampled(), telemetry.span("spark query"):
        assert telemetry.trace_id() is None
        headers = telemetry.inject()
    assert telemetry.sampled(headers) == ""
    with telemetry.span("run f", parent=headers):
        pass
    assert kept.get_finished_spans() == ()


def test_what_comes_after_it_is_traced_again(kept: InMemorySpanExporter) -> None:
    with telemetry.unsampled():
        pass
    with telemetry.span("run g"):
        assert telemetry.trace_id()
    assert [span.name for span in kept.get_finished_spans()] == ["run g"]


IDS = f"{'ab' * 16}-{'cd' * 8}"


@pytest.mark.parametrize(
    "header",
    ["", "rubbish", f"00-{'0' * 32}-{'1' * 16}-01", f"00-{'1' * 32}-{'0' * 16}-01", f"ff-{IDS}-01",
     f"00-{IDS}-01", f" 00-{IDS}-01 ", f"00-{IDS}-01-more", f"01-{IDS}-01-more", f"00-{IDS}-1",
     f"00-{IDS.upper()}-01"],
)  # fmt: skip
def test_ids_are_those_that_the_library_reads(header: str) -> None:
    context = trace.get_current_span(telemetry.extract({"traceparent": header})).get_span_context()
    known = trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
    assert telemetry.ids(header) == (known if context.is_valid else None)


def test_ids_and_sampled() -> None:
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert telemetry.ids(parent) == ("ab" * 16, "cd" * 8)
    assert telemetry.sampled({"traceparent": parent}) == parent
    assert telemetry.sampled({"traceparent": parent[:-1] + "0"}) == ""
    assert telemetry.sampled({}) == ""


def test_a_long_trace_parent_is_not_looked_at() -> None:
    """The pattern once took time by the square of the length: minutes for a report of a worker."""
    parent = f"01-{IDS}-01"
    assert telemetry.ids(parent + "-" + "x" * 40)
    for rest in ("-" + "x" * 100, "-" + " " * 1_000_000 + "\n", " " * 1_000_000):
        assert telemetry.ids(parent + rest) is None
        assert telemetry.sampled({"traceparent": parent + rest}) == ""
