"""The trace context in message headers (W3C ``traceparent``)."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_propagator = TraceContextTextMapPropagator()


def inject(headers: Mapping[str, str] | None = None, span: Span | None = None) -> dict[str, str]:
    """A copy of ``headers`` that carries ``span`` (the current one by default), if there is one."""
    carrier = dict(headers or ())
    context = None if span is None else trace.set_span_in_context(span, Context())
    _propagator.inject(carrier, context)
    return carrier


def extract(headers: Mapping[str, str] | None) -> Context:
    """The context in ``headers``; an empty one (a new story) where none or a broken one is."""
    return _propagator.extract(headers or {}, Context())


def links(*headers: Mapping[str, str] | None) -> list[Link]:
    """Links to the spans that each of ``headers`` carries; those without one are left out."""
    found = (trace.get_current_span(extract(each)).get_span_context() for each in headers)
    return [Link(context) for context in found if context.is_valid]
