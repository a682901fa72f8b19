"""A plain span is what the SDK would have sent, made for a tenth of the price."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace import SpanKind

from penstock import telemetry
from penstock.telemetry.otlp import wire
from penstock.telemetry.plain_spans import Maker, PlainSpan

SHAPE = telemetry.Shape(
    "run f", SpanKind.CONSUMER, fixed={"queue": "q", "tries": 3}, varying=("id", "attempt", "wait")
)
VALUES = ("7", 1, 0.25)
PARENT = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
RESOURCE = Resource({"service.name": "penstock-test"})


class Kept:
    """A process's tracing: the spans that the SDK ended, and the plain ones."""

    def __init__(self, share: float = 1.0) -> None:
        sampler, ids = ParentBasedTraceIdRatio(share), wire.Ids()
        self._sdk = InMemorySpanExporter()
        provider = TracerProvider(sampler=sampler, id_generator=ids, resource=RESOURCE)
        provider.add_span_processor(SimpleSpanProcessor(self._sdk))
        self.plain: list[PlainSpan] = []
        self.tracer = provider.get_tracer(wire.SCOPE)
        found = wire.maker(self.tracer, sampler, ids, self.plain.append)
        assert found is not None
        self.maker: Maker = found

    def start(self, headers: dict[str, str], values: Any = VALUES) -> Any:
        return self.maker.start(SHAPE, headers, values)

    @property
    def sdk(self) -> tuple[ReadableSpan, ...]:
        return self._sdk.get_finished_spans()


headers = st.builds(
    lambda trace, span, flags, state: {
        "traceparent": f"00-{trace:032x}-{span:016x}-{flags}",
        **({"tracestate": f"vendor={state}"} if state else {}),
    },
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.sampled_from(["01", "03"]),
    st.sampled_from(["", "x"]),
)


@settings(max_examples=30, deadline=None)
@given(
    st.one_of(headers, st.just({})),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
)
def test_the_bytes_say_what_the_sdk_would_have_said(
    came: dict[str, str], text: str, number: int, share: float
) -> None:
    kept = Kept()
    values = (text, number, share)
    plain, twin = kept.start(came, values), kept.start(came, values)
    twin.context = plain.context
    real = twin.real()
    plain.started_ns = real.start_time
    plain.end(plain.started_ns + 5)
    real.end(plain.started_ns + 5)
    sent = ExportTraceServiceRequest.FromString(wire.encode([plain], wire.process_head(RESOURCE)))
    assert sent == encode_spans(kept.sdk)


def test_requests_one_after_the_other_are_one_request() -> None:
    kept = Kept()
    kept.start(PARENT).end()
    kept.tracer.start_span("query").end()
    body = (
        wire.encode(kept.plain, wire.process_head(RESOURCE))
        + encode_spans(kept.sdk).SerializeToString()
    )
    got = ExportTraceServiceRequest.FromString(body)
    names = [each.scope_spans[0].spans[0].name for each in got.resource_spans]
    assert names == ["run f", "query"]


def test_what_is_written_to_it_is_sent_by_the_sdk_under_the_same_ids() -> None:
    kept = Kept()
    span = kept.start(PARENT)
    span.set_attribute("rows", 3)
    span.add_event("half-way")
    span.end()
    [got] = kept.sdk
    assert (kept.plain, got.context) == ([], span.get_span_context())
    assert got.attributes == {**SHAPE.attributes(VALUES), "rows": 3}
    assert [each.name for each in got.events] == ["half-way"]
    assert got.start_time == span.started_ns
    assert not span.is_recording()


def test_after_its_end_it_takes_nothing_and_ends_once() -> None:
    kept = Kept()
    span = kept.start(PARENT)
    assert span.is_recording()
    for _ in range(2):
        span.end()
        span.set_attribute("late", 1)
    assert (kept.plain, kept.sdk) == ([span], ())


def test_another_s_span_does_not_get_the_ids_of_the_one_before() -> None:
    kept = Kept()
    kept.start(PARENT).real().end()
    kept.tracer.start_span("query").end()
    run, query = kept.sdk
    assert run.context.span_id != query.context.span_id
    assert run.context.trace_id != query.context.trace_id


@pytest.mark.parametrize("flags", ["00", "05"])
def test_what_is_not_sampled_or_not_known_is_the_sdk_s_to_decide(flags: str) -> None:
    came = {"traceparent": PARENT["traceparent"][:-2] + flags}
    assert Kept().start(came) is None


def test_a_story_that_begins_here_is_sampled_by_its_share() -> None:
    kept = Kept(share=0.5)
    spans = [kept.start({}) for _ in range(400)]
    traced = [each for each in spans if each.get_span_context().trace_flags.sampled]
    assert 120 < len(traced) < 280
    assert all(each.is_recording() for each in traced)


def test_limits_of_the_environment_are_the_sdk_s_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "10")
    sampler = ParentBasedTraceIdRatio(1.0)
    tracer = TracerProvider().get_tracer(wire.SCOPE)
    assert wire.maker(tracer, sampler, wire.Ids(), print) is None
