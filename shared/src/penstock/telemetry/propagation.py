"""The trace context in message headers: W3C ``traceparent``, and others that are asked for.

Events and messages always carry the W3C header, which is what Penstock itself goes by. The formats
of ``telemetry.propagators`` stand beside it, for programs that read the same messages, and in the
calls that jobs make with instrumented libraries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from penstock.config.extras import ExtraMissing

_PARENT = "traceparent"
_PARENT_PARTS = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?")
"""Version, ids, flags, and what a version after 00 may have besides (W3C trace context)."""
_LONGEST_PARENT = 100
"""Version 00 has 55 characters. Any sender of a message may write more: it is not looked at."""
_LONGEST_HEADER = 8_192
"""OpenTelemetry's bound of a baggage header; what is longer it refuses, and logs as a whole."""
_W3C = TraceContextTextMapPropagator()
_PACKAGES = {"b3": "b3", "b3multi": "b3", "jaeger": "jaeger"}
_VARIABLE = "OTEL_PROPAGATORS"
_propagator: TextMapPropagator = _W3C


def use(
    names: Sequence[str],
    environment: Mapping[str, str] = os.environ,
    *,
    for_libraries: bool = True,
) -> None:
    """Has further formats written and read, by this process and by the libraries that it uses.

    Args:
        names: ``tracecontext``, ``baggage``, ``b3``, ``b3multi`` or ``jaeger``; none for those of
            ``OTEL_PROPAGATORS``, if that is set.
        environment: variables of the process.
        for_libraries: also by those; not so in a process that is another's, such as a client's.

    Raises:
        ExtraMissing: the library of a format is not installed.
    """
    global _propagator  # noqa: PLW0603 - one a process, like OpenTelemetry's own
    wanted = names or [name.strip() for name in environment.get(_VARIABLE, "").split(",")]
    others = [name for name in wanted if name not in ("", "none", "tracecontext")]
    if not others:
        _propagator = _W3C
        return
    from opentelemetry.propagate import set_global_textmap  # noqa: PLC0415 - not of each process
    from opentelemetry.propagators.composite import CompositePropagator  # noqa: PLC0415

    made = [_load(name) for name in others]
    _propagator = CompositePropagator([*made, _W3C])  # of two that differ, the last one read counts
    if for_libraries:
        set_global_textmap(CompositePropagator([*made, _W3C] if "tracecontext" in wanted else made))


def _load(name: str) -> TextMapPropagator:
    from importlib.metadata import entry_points  # noqa: PLC0415

    for entry in entry_points(group="opentelemetry_propagator", name=name):
        made: TextMapPropagator = entry.load()()
        return made
    package = f"opentelemetry-propagator-{_PACKAGES.get(name, name)}"
    raise ExtraMissing(
        f"telemetry.propagators names {name!r}, which needs the package {package}; "
        "run: pip install 'penstock-client[telemetry]'"
    )


def inject(headers: Mapping[str, str] | None = None, span: Span | None = None) -> dict[str, str]:
    """A copy of ``headers`` that carries ``span`` (the current one by default), if there is one."""
    carrier = dict(headers or ())
    context = None if span is None else trace.set_span_in_context(span, Context())
    _propagator.inject(carrier, context)
    return carrier


def extract(headers: Mapping[str, str] | None) -> Context:
    """The context in ``headers``; an empty one (a new trace) where none or a broken one is."""
    bounded = {
        name: value for name, value in (headers or {}).items() if len(value) <= _LONGEST_HEADER
    }
    return _propagator.extract(bounded, Context())


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether only formats beside W3C's can be in ``headers``."""
    return _propagator is not _W3C and _PARENT not in headers


def sampled(headers: Mapping[str, str] | None) -> str:
    """The trace parent in ``headers`` if that trace is sampled; empty where not."""
    context = trace.get_current_span(_W3C.extract(headers or {}, Context())).get_span_context()
    parent = (headers or {}).get(_PARENT, "")
    return parent if context.trace_flags.sampled and ids(parent) else ""


def ids(traceparent: str) -> tuple[str, str] | None:
    """Trace and span id, hexadecimal; None for what is no trace parent.

    Read of each job's message: the library takes 12 µs for it.
    """
    if len(traceparent) > _LONGEST_PARENT:
        return None
    match = _PARENT_PARTS.fullmatch(traceparent.strip(" \t"))
    if match is None:
        return None
    version, trace_id, span_id, further = match.groups()
    is_known = version != "ff" and not (version == "00" and further)
    return (trace_id, span_id) if is_known and trace_id.strip("0") and span_id.strip("0") else None


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
