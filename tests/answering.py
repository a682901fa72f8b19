"""Waiting for a server of a test's own to answer on its port."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

_START_SECONDS = 60.0


def until_answered(port: int, question: bytes, answer: bytes, log: Path | None = None) -> None:
    """Returns when the server on this port of loopback answers as it should.

    Args:
        question: what is sent.
        answer: how the answer begins.
        log: shown where the server does not answer.

    Raises:
        TimeoutError: it has not answered for a minute.
    """
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as asked:
            asked.sendall(question)
            if asked.recv(100).startswith(answer):
                return
        time.sleep(0.02)
    raise TimeoutError(log.read_text() if log else f"no server answers on port {port}")
