"""Opening spans. Until a collector is set up there is no tracer and every span is an empty one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
)
from opentelemetry.util.types import AttributeValue

from penstock.telemetry.names import ERROR_TYPE
from penstock.telemetry.plain_spans import Maker, Shape, Values
from penstock.telemetry.propagation import extract, is_foreign, links_to

Parent = Context | Mapping[str, str] | None
Attributes = Mapping[str, AttributeValue]

ERROR = Status(StatusCode.ERROR)
"""For ``span.set_status`` where there is no exception to hand to :func:`fail`."""

_off: AbstractContextManager[Span] = nullcontext(INVALID_SPAN)
_no_tracer = trace.NoOpTracer()
_tracer: Tracer | None = None
_maker: Maker | None = None
_unsampled = NonRecordingSpan(SpanContext(1, 1, is_remote=False))


class Pace:
    """Counts to ``most`` each second; 0 is no limit."""

    def __init__(self, most: int = 0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most, self._monotonic = most, monotonic
        self._began, self._count = monotonic(), 0

    def exceeded(self) -> bool:
        """Whether this one, which counts, is one too many."""
        if not self._most:
            return False
        now = self._monotonic()
        if now - self._began >= 1.0:
            self._began, self._count = now, 0
        self._count += 1
        return self._count > self._most


_pace = Pace()


def use(tracer: Tracer | None, traces_per_second: int = 0, maker: Maker | None = None) -> None:
    """Makes a tracer the process's own; None turns tracing off.

    Args:
        tracer: of the SDK.
        traces_per_second: bound of `unsampled`; 0 for none.
        maker: of plain spans.
    """
    global _tracer, _pace, _maker  # one tracer a process, like OpenTelemetry's own
    _tracer, _pace, _maker = tracer, Pace(traces_per_second), maker


def enabled() -> bool:
    """Whether spans go anywhere. Cheap enough for each of 10,000 jobs a second."""
    return _tracer is not None


def beyond_pace() -> bool:
    """Whether a job that begins now, which counts, is one too many to be traced.

    A span takes 0.02 ms, its sending included, and 0.1 where a job writes to it, as much as an
    empty job: with this bound, tracing hardly slows thousands of jobs a second.
    """
    return _tracer is not None and _pace.exceeded()


def unsampled() -> AbstractContextManager[Span]:
    """A block without spans, its own or those of what is called in it."""
    return _off if _tracer is None else _Current(_unsampled)


def tracer() -> Tracer:
    """The process's tracer, or one that does nothing."""
    return _tracer or _no_tracer


def span(
    name: str,
    *,
    parent: Parent = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes | None = None,
    links: Sequence[Link] = (),
) -> AbstractContextManager[Span]:
    """A span around a block, current inside it; an exception that leaves the block marks it failed.

    Args:
        name: made by a function of :mod:`penstock.telemetry.names`.
        parent: message headers (nothing in them starts a new trace) or a context; None takes the
            current span.
    """
    if _tracer is None:
        return _off
    return _Current(start(name, parent=parent, kind=kind, attributes=attributes, links=links))


def handling(
    shape: Shape, headers: Mapping[str, str], values: Values
) -> AbstractContextManager[Span]:
    """As :func:`span`, around work that a message asked for: its child, and linked to it.

    For a hot path: a sixth of the cost.
    """
    maker = None if is_foreign(headers) else _maker
    if maker and (opened := maker.start(shape, headers, values)):
        return _Current(opened)
    context = extract(headers)
    return span(
        shape.name,
        parent=context,
        kind=shape.kind,
        attributes=shape.attributes(values),
        links=links_to(context),
    )


def start(
    name: str,
    *,
    parent: Parent = None,
    kind: SpanKind = SpanKind.INTERNAL,
    attributes: Attributes | None = None,
    links: Sequence[Link] = (),
    started_at: float | None = None,
) -> Span:
    """A span that the caller ends, with ``span.end()``; it is not made current.

    Args:
        started_at: POSIX seconds, for something that began before now.
    """
    if _tracer is None:
        return INVALID_SPAN
    return _tracer.start_span(
        name,
        context=_context(parent),
        kind=kind,
        attributes=attributes,
        links=links,
        start_time=None if started_at is None else int(started_at * 1e9),
    )


def fail(failed: Span, error: BaseException) -> None:
    """Marks a span as failed by ``error``; its text goes along, its traceback does not."""
    kind = type(error)
    failed.set_attribute(ERROR_TYPE, f"{kind.__module__}.{kind.__qualname__}")
    failed.set_status(Status(StatusCode.ERROR, str(error)[:1000]))


def trace_id(of: Span | None = None) -> str | None:
    """Id of a span's trace (default: the current one), 32 hexadecimal digits; None untraced."""
    context = (of or trace.get_current_span()).get_span_context()
    return trace.format_trace_id(context.trace_id) if context.trace_flags.sampled else None


def _context(parent: Parent) -> Context | None:
    return parent if parent is None or isinstance(parent, Context) else extract(parent)


class _Current:
    """A block whose current span is this one, which ends with it; a third of `use_span`'s cost."""

    __slots__ = ("_span", "_token")

    def __init__(self, opened: Span) -> None:
        self._span = opened

    def __enter__(self) -> Span:
        self._token = attach(trace.set_span_in_context(self._span))
        return self._span

    def __exit__(
        self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None
    ) -> None:
        detach(self._token)
        if error is not None:
            fail(self._span, error)
        self._span.end()
