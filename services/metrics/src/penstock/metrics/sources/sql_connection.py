"""A connection to PostgreSQL whose answers are bounded: libpq takes any size. Needs psycopg."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Generator
from typing import Any

from psycopg import AsyncConnection, OperationalError

MOST_BYTES = 8_000_000
"""Of a statement's answer: ten thousand names and their figures have a quarter of it."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_RECEIVED = struct.Struct("128xQ")
"""``tcpi_bytes_received`` in ``struct tcp_info`` of Linux."""


class BoundedConnection(AsyncConnection[dict[str, Any]]):
    """Gives up a statement whose answer is too large, before libpq has it all in memory.

    The kernel counts what came. It does so for TCP alone: a server at a socket of this machine is
    bounded by ``statement_timeout`` only.
    """

    async def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """As psycopg, which waits here for each part of an answer.

        Raises:
            OperationalError: the answer is too large.
        """
        with socket.socket(fileno=os.dup(self.pgconn.socket)) as sock:
            return await super().wait(_bounded(gen, sock), *args, **options)


def _bounded(gen: Generator[Any, Any, Any], sock: socket.socket) -> Generator[Any, Any, Any]:
    """Looks at how much has come each time before ``gen`` reads some of it."""
    before, ready = _received_bytes(sock), None
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
        ready = yield wanted
        if _received_bytes(sock) - before > MOST_BYTES:
            raise OperationalError(f"the server answered with more than {MOST_BYTES} bytes")


def _received_bytes(sock: socket.socket) -> int:
    """Of the whole connection; 0 where the kernel does not count them."""
    if _TCP_INFO is None:
        return 0
    try:
        count: int = _RECEIVED.unpack(
            sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RECEIVED.size)
        )[0]
    except (OSError, struct.error):
        return 0
    return count
