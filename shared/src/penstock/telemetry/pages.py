"""`/healthz`, `/readyz` and `/metrics` over HTTP, from threads of their own.

Not in the service's loop, so that a stuck loop can still report why (docs/decisions/0011); not by
`prometheus_client`'s server, which has one path and no bound on slow connections. There is no TLS
and no password: the address is loopback, or one that only the monitoring system can reach.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, NamedTuple

from penstock.telemetry.checks import Checks
from penstock.telemetry.exposition import Exposition
from penstock.telemetry.meters import Meters

log = logging.getLogger(__name__)

MOST_OPEN = 16
"""Connections at a time; a further one closes the oldest, so that slow ones block no reader."""
PATIENCE_SECONDS = 5.0
_POLL_SECONDS = 0.1


class Answer(NamedTuple):
    status: int
    content_type: str
    body: bytes


Route = Callable[[str], Answer]
"""From the request's ``Accept`` header to the response."""


def routes(checks: Checks, meters: Meters, metrics_path: str = "/metrics") -> dict[str, Route]:
    """The routes of every service, by path."""
    exposition = Exposition(meters)

    def healthz(_: str) -> Answer:
        stuck = checks.stuck()
        return _json(not stuck, {"alive": not stuck, "reason": stuck})

    def readyz(_: str) -> Answer:
        reasons = checks.reasons()
        ready = not any(reasons.values())
        return _json(ready, {"ready": ready, "checks": {k: v or "ok" for k, v in reasons.items()}})

    def metrics(accept: str) -> Answer:
        return Answer(200, *exposition.page(accept))

    return {"/healthz": healthz, "/readyz": readyz, metrics_path: metrics}


def _json(passed: bool, body: Mapping[str, Any]) -> Answer:
    return Answer(200 if passed else 503, "application/json", json.dumps(body).encode() + b"\n")


class Pages:
    """Serves from construction until :meth:`close`.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, address: str, port: int, routes: Mapping[str, Route]) -> None:
        self._server = _Server((address, port), _handler(routes))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="pages", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stops serving at once: responses under way are cut off."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: deque[Any] = deque()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's looks its own name up, which may block

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.append(request)
        while len(self._open) > MOST_OPEN:
            with suppress(OSError, IndexError):
                self._open.popleft().shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        super().server_close()
        for request in tuple(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client closed its connection", exc_info=True)


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_SECONDS

        def do_GET(self) -> None:
            route = routes.get(self.path.partition("?")[0])
            paths = ", ".join(routes)
            missing = Answer(404, "text/plain", f"expected one of {paths}\n".encode())
            answer = route(self.headers.get("Accept", "")) if route else missing
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def version_string(self) -> str:
            return "penstock"

        def log_message(self, *_: object) -> None:
            pass

    return Handler
