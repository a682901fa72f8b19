"""Traces across processes. Off until :func:`setup` finds an endpoint.

::

    shutdown = telemetry.setup("penstock-worker", instance, settings)
    with telemetry.span(names.run(function), parent=headers, kind=SpanKind.CONSUMER) as span:
        span.set_attribute(names.ATTEMPT, attempt)
        await bus.append(Outgoing(subject, body, telemetry.inject(headers)))
    shutdown()

A hot path asks :func:`enabled` first; when off, everything here costs next to nothing.
"""

from opentelemetry.trace import Span, SpanKind

from penstock.telemetry import names
from penstock.telemetry.collector import Shutdown, preload, setup
from penstock.telemetry.plain_spans import Shape
from penstock.telemetry.propagation import extract, ids, inject, links, sampled, within
from penstock.telemetry.spans import (
    ERROR,
    beyond_pace,
    enabled,
    fail,
    handling,
    span,
    start,
    trace_id,
    tracer,
    unsampled,
)

__all__ = [
    "ERROR",
    "Shape",
    "Shutdown",
    "Span",
    "SpanKind",
    "beyond_pace",
    "enabled",
    "extract",
    "fail",
    "handling",
    "ids",
    "inject",
    "links",
    "names",
    "preload",
    "sampled",
    "setup",
    "span",
    "start",
    "trace_id",
    "tracer",
    "unsampled",
    "within",
]
