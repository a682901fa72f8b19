"""Plain spans as the SDK's, and in OTLP's protobuf: 6 µs each, not 39 (docs/decisions/0015)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import lru_cache

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, SpanFlags
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, Sampler
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import (
    INVALID_SPAN_CONTEXT,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    Tracer,
    set_span_in_context,
)

from penstock.telemetry.plain_spans import Maker, PlainSpan, Shape

SCOPE = "penstock"
MOST_ATTRIBUTES = 16
_FIELDS = {str: "string_value", int: "int_value", float: "double_value"}
_REMOTE = SpanFlags.SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK | (
    SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK
)


class Ids(RandomIdGenerator, threading.local):
    """Random, except for the SDK's span that takes a plain one's place."""

    chosen: SpanContext | None = None

    def generate_span_id(self) -> int:
        return self.chosen.span_id if self.chosen else super().generate_span_id()

    def generate_trace_id(self) -> int:
        return self.chosen.trace_id if self.chosen else super().generate_trace_id()


def maker(
    tracer: Tracer, sampler: Sampler, ids: Ids, ended: Callable[[PlainSpan], None]
) -> Maker | None:
    """Plain spans beside a tracer's; None where its limits (``OTEL_…_LIMIT``) would cut them."""
    limits = SpanLimits()
    if limits.max_span_attribute_length is not None or not limits.max_links:
        return None
    if (limits.max_span_attributes or MOST_ATTRIBUTES) < MOST_ATTRIBUTES:
        return None

    def keeps(trace_id: int) -> bool:
        decision = sampler.should_sample(Context(), trace_id, SCOPE).decision
        return decision is Decision.RECORD_AND_SAMPLE

    def become(plain: PlainSpan) -> Span:
        ids.chosen = plain.context
        try:
            return _start(tracer, plain)
        finally:
            ids.chosen = None

    return Maker(ids.generate_trace_id, ids.generate_span_id, keeps, become, ended)


def _start(tracer: Tracer, plain: PlainSpan) -> Span:
    context = Context()
    if plain.parent:
        context = set_span_in_context(NonRecordingSpan(plain.parent), context)
    return tracer.start_span(
        plain.shape.name,
        context=context,
        kind=plain.shape.kind,
        attributes=plain.shape.attributes(plain.values),
        links=[Link(plain.parent)] if plain.parent else (),
        start_time=plain.started_ns,
    )


def process_head(resource: Resource) -> ResourceSpans:
    """The description of the process that is posted before its spans."""
    empty = ReadableSpan(
        "",
        INVALID_SPAN_CONTEXT,
        resource=resource,
        instrumentation_scope=InstrumentationScope(SCOPE),
    )
    head: ResourceSpans = encode_spans([empty]).resource_spans[0]
    head.scope_spans[0].ClearField("spans")
    return head


def encode(spans: Iterable[PlainSpan], by: ResourceSpans) -> bytes:
    """A request to post. The SDK's encoded spans may be appended: protobuf joins messages."""
    request = ExportTraceServiceRequest(resource_spans=[by])
    add = request.resource_spans[0].scope_spans[0].spans.add
    for span in spans:
        _fill(add(), span)
    encoded: bytes = request.SerializeToString()
    return encoded


def _fill(wire: WireSpan, span: PlainSpan) -> None:
    context, parent = span.context, span.parent
    wire.MergeFrom(_common(span.shape))
    wire.trace_id = context.trace_id.to_bytes(16, "big")
    wire.span_id = context.span_id.to_bytes(8, "big")
    wire.start_time_unix_nano, wire.end_time_unix_nano = span.started_ns, span.ended_ns
    for index, value in enumerate(span.values, len(span.shape.fixed)):
        setattr(wire.attributes[index].value, _FIELDS[type(value)], value)
    if parent is not None:
        wire.parent_span_id = parent.span_id.to_bytes(8, "big")
        wire.flags = _REMOTE
        wire.links.add(trace_id=wire.trace_id, span_id=wire.parent_span_id, flags=_REMOTE)
        if context.trace_state:
            wire.trace_state = context.trace_state.to_header()


@lru_cache(1024)
def _common(shape: Shape) -> WireSpan:
    fixed = ReadableSpan(shape.name, INVALID_SPAN_CONTEXT, kind=shape.kind, attributes=shape.fixed)
    common: WireSpan = encode_spans([fixed]).resource_spans[0].scope_spans[0].spans[0]
    common.attributes.extend(KeyValue(key=name) for name in shape.varying)
    return common
