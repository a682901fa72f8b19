"""An HTTP server whose answers a test sets, and which counts its open connections."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit


class Pages:
    """Answers GET requests on loopback.

    Attributes:
        answer: status, headers and body for a path with its query.
        requests: paths that were asked for, with the header ``Authorization`` of each.
    """

    def __init__(self, answer: Callable[[str], tuple[int, dict[str, str], bytes]]) -> None:
        self.answer = answer
        self.requests: list[tuple[str, str | None]] = []
        self.open: set[socket.socket] = set()
        self._port = 0
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        pages = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                pages.open.add(self.request)

            def finish(self) -> None:
                with suppress(OSError):
                    super().finish()
                pages.open.discard(self.request)

            def do_GET(self) -> None:
                pages.requests.append((self.path, self.headers.get("Authorization")))
                status, headers, body = pages.answer(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(OSError):
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *_: object) -> None:
                pass

        self._server = Server(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_address[1]
        Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def path_of(self, target: str) -> str:
        return urlsplit(target).path
