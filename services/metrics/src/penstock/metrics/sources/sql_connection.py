"""A connection to PostgreSQL whose answers are bounded: libpq takes any size. Needs psycopg."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Generator
from fcntl import ioctl
from termios import FIONREAD
from typing import Any

from psycopg import AsyncConnection, OperationalError

MOST_BYTES = 8_000_000
"""Of a statement's answer: ten thousand names and their figures have a quarter of it."""
_KERNEL_BYTES = 65_536
"""libpq reads for as long as something is there: a fast server must not keep it so."""
_MOST_PENDING_BYTES = 100_000_000
"""Summed up before each read, where the kernel does not count what came. Of many rows libpq reads a
twelfth or so of what is there; of one large value, more than was there: that is not bounded."""
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_RECEIVED = struct.Struct("128xQ")
"""``tcpi_bytes_received`` in ``struct tcp_info`` of Linux."""
_PENDING = struct.Struct("i")


class BoundedConnection(AsyncConnection[dict[str, Any]]):
    """Gives up a statement whose answer is too large, before libpq has it all in memory."""

    async def wait(self, gen: Generator[Any, Any, Any], *args: Any, **options: Any) -> Any:
        """As psycopg, which waits here for each part of an answer.

        Raises:
            OperationalError: the answer is too large.
        """
        with socket.socket(fileno=os.dup(self.pgconn.socket)) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _KERNEL_BYTES)
            return await super().wait(_bounded(gen, sock), *args, **options)


def _bounded(gen: Generator[Any, Any, Any], sock: socket.socket) -> Generator[Any, Any, Any]:
    """Looks at how much has come each time before ``gen`` reads some of it."""
    before, pending, ready = _received_bytes(sock), 0, None
    while True:
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
        ready = yield wanted
        pending += 0 if before else _pending_bytes(sock)
        if _received_bytes(sock) - before > MOST_BYTES or pending > _MOST_PENDING_BYTES:
            raise OperationalError(f"the server answered with more than {MOST_BYTES} bytes")


def _received_bytes(sock: socket.socket) -> int:
    """Of the whole connection; 0 where the kernel does not count them, as of Unix sockets."""
    if _TCP_INFO is None:
        return 0
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _RECEIVED.size)
        count: int = _RECEIVED.unpack(info)[0]
    except (OSError, struct.error):
        return 0
    return count


def _pending_bytes(sock: socket.socket) -> int:
    count: int = _PENDING.unpack(ioctl(sock.fileno(), FIONREAD, bytes(_PENDING.size)))[0]
    return count
