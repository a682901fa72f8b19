"""The trace context in message headers (W3C ``traceparent``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Link, Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()
_PARENT = "traceparent"


def inject(headers: Mapping[str, str] | None = None, span: Span | None = None) -> dict[str, str]:
    """A copy of ``headers`` that carries ``span`` (the current one by default), if there is one."""
    carrier = dict(headers or ())
    context = None if span is None else trace.set_span_in_context(span, Context())
    _propagator.inject(carrier, context)
    return carrier


def extract(headers: Mapping[str, str] | None) -> Context:
    """The context in ``headers``; an empty one (a new trace) where none or a broken one is."""
    return _propagator.extract(headers or {}, Context())


def sampled(headers: Mapping[str, str] | None) -> str:
    """The trace parent in ``headers`` if that trace is sampled; empty where not."""
    context = trace.get_current_span(extract(headers)).get_span_context()
    keeps = context.is_valid and context.trace_flags.sampled
    return (headers or {})[_PARENT] if keeps else ""


def ids(traceparent: str) -> tuple[str, str] | None:
    """Trace and span id, hexadecimal; None for what is no trace parent."""
    context = trace.get_current_span(extract({_PARENT: traceparent})).get_span_context()
    if not context.is_valid:
        return None
    return trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)


@contextmanager
def within(headers: Mapping[str, str] | None) -> Iterator[None]:
    """Log lines of the block belong to the trace that ``headers`` carry, if they do."""
    if not headers:
        yield
        return
    token = attach(extract(headers))
    try:
        yield
    finally:
        detach(token)


def links(*headers: Mapping[str, str] | None) -> list[Link]:
    """Links to the spans that each of ``headers`` carries; those without one are left out."""
    return links_to(*map(extract, headers))


def links_to(*contexts: Context) -> list[Link]:
    """Links to the span of each context that has one."""
    spans = (trace.get_current_span(context).get_span_context() for context in contexts)
    return [Link(span) for span in spans if span.is_valid]
