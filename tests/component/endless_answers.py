"""A server on loopback whose answers do not end, and which notices when its client leaves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

DRIP_SECONDS = 0.02

_ENDLESS = {
    "head": (b"HTTP/1.1 200 OK\r\nX: ", b"a", DRIP_SECONDS),
    "interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 50, 0.0),
    "slow interim": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", DRIP_SECONDS),
    "chunk size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0", DRIP_SECONDS),
}
MODES = tuple(_ENDLESS)


class EndlessAnswers:
    """Begins to answer in one of the `MODES`.

    Attributes:
        url: of the server.
        client_left: a client has closed its connection.
    """

    def __init__(self, mode: str) -> None:
        self._first, self._again, self._pause_seconds = _ENDLESS[mode]
        self._server = socket.create_server(("127.0.0.1", 0))
        self._stopped = threading.Event()
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.client_left = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        """Closes all connections, so that a client that hangs ends too."""
        self._stopped.set()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(4096)
            client.sendall(self._first)
            while not self._stopped.wait(self._pause_seconds):
                client.sendall(self._again)
            return
        self.client_left.set()  # sending failed


@contextmanager
def endless_answers(mode: str) -> Iterator[EndlessAnswers]:
    """One that runs meanwhile."""
    server = EndlessAnswers(mode)
    try:
        yield server
    finally:
        server.stop()
