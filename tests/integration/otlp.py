"""A collector on loopback that keeps what it is sent: real HTTP, real OTLP, no mocks.

::

    with Collector() as collector:
        settings = load(environment={}, flags={"telemetry.endpoint": collector.endpoint})
        ...
        run = collector.wait_for("run", within=10)   # by the first word of the name, or a predicate
        assert run.parent_id == collector.wait_for("dispatch").span_id
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan


@dataclass(frozen=True)
class Received:
    """One span as it came over the wire; ids in hexadecimal digits, ``parent_id`` "" for a root."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    service: str
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    """(trace id, span id) of each link."""
    failed: bool
    seconds: float
    resource: dict[str, Any] = field(repr=False)


Predicate = Callable[[Received], bool]


class Collector:
    """Listens while the block runs.

    Args:
        port: 0 takes a free one.
        answer: HTTP status of each answer. hang: answers nothing until :meth:`release`.
        host: address to listen on.
    """

    def __init__(
        self, port: int = 0, answer: int = 200, hang: bool = False, host: str = "127.0.0.1"
    ) -> None:
        self.answer = answer
        self.posts = 0
        self._host = host
        self._spans: list[Received] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.logs: list[ExportLogsServiceRequest] = []
        self._news = threading.Condition()
        self._go = threading.Event()
        if not hang:
            self._go.set()
        self._server = ThreadingHTTPServer((host, port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def endpoint(self) -> str:
        return f"http://{self._host}:{self._server.server_port}"

    @property
    def port(self) -> int:
        return int(self._server.server_port)

    @property
    def spans(self) -> list[Received]:
        with self._news:
            return list(self._spans)

    def release(self) -> None:
        """Ends the hanging."""
        self._go.set()

    def wait_for(self, what: str | Predicate, within: float = 10.0) -> Received:
        """The first span that fits: of this name, or whose name's first word it is, or a predicate.

        Raises:
            AssertionError: none came in ``within`` seconds; says which names did.
        """
        return self.wait_for_all(what, count=1, within=within)[0]

    def wait_for_all(
        self, what: str | Predicate, count: int, within: float = 10.0
    ) -> list[Received]:
        """At least ``count`` spans that fit, in the order they came."""
        fits = what if callable(what) else _named(what)
        deadline = time.monotonic() + within
        with self._news:
            while len(found := [span for span in self._spans if fits(span)]) < count:
                if not self._news.wait(deadline - time.monotonic()):
                    names = sorted({span.name for span in self._spans})
                    raise AssertionError(
                        f"{len(found)} of {count} spans {what!r} after {within} s; came: {names}"
                    )
            return found

    def take(self, path: str, body: bytes) -> None:
        """Keeps what one request brought."""
        match path.rpartition("/")[2]:
            case "metrics":
                self.metrics.append(ExportMetricsServiceRequest.FromString(body))
            case "logs":
                self.logs.append(ExportLogsServiceRequest.FromString(body))
            case _:
                self._take_spans(body)

    def _take_spans(self, body: bytes) -> None:
        spans = _spans_in(ExportTraceServiceRequest.FromString(body))
        with self._news:
            self.posts += 1
            self._spans.extend(spans)
            self._news.notify_all()

    def wait_until_released(self) -> None:
        self._go.wait()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _named(name: str) -> Predicate:
    return lambda span: span.name == name or span.name.startswith(name + " ")


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.wait_until_released()
            if collector.answer == 200:
                collector.take(self.path, body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(collector.answer)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def _spans_in(request: ExportTraceServiceRequest) -> list[Received]:
    return [
        _received(span, {each.key: _value(each.value) for each in group.resource.attributes})
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _received(span: WireSpan, resource: dict[str, Any]) -> Received:
    return Received(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        kind=WireSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_").lower(),
        service=str(resource.get("service.name", "")),
        attributes={each.key: _value(each.value) for each in span.attributes},
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        resource=resource,
    )


def _value(wire: AnyValue) -> Any:
    kind = wire.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in wire.array_value.values]
    return getattr(wire, kind) if kind else None
