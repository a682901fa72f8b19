"""GET requests that end by their deadline, whatever the server sends.

The timeout of `http.client` is one of each read: a server that sends a byte now and then, or
interim answers (``100 Continue``) without end, holds its caller for ever.
"""

from __future__ import annotations

import io
import socket
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPResponse
from typing import Any

_HEAD_BYTES = 32_768
"""Of status line and headers, interim answers included."""


class TooLarge(OSError):
    """The server sent more than it may."""


class BoundedConnection(HTTPConnection):
    """One connection to a server, used by one thread at a time. No proxy, no redirection.

    Args:
        port: None for the usual one.
        tls: how the server is trusted; None for plain HTTP.
    """

    def __init__(
        self, host: str, port: int | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        if tls:
            self.default_port = 443
        super().__init__(host, port)
        self._tls = tls
        self._bounds = _Bounds()

    def get(
        self,
        target: str,
        headers: Mapping[str, str] | None = None,
        *,
        deadline: float,
        most_bytes: int = 0,
    ) -> HTTPResponse:
        """The answer; its body, which is not read yet, is bounded too.

        Only the lookup of a host's name takes as long as the system's resolver does.

        Args:
            target: path and query.
            deadline: monotonic seconds.
            most_bytes: of the body as it is transferred.

        Raises:
            TimeoutError: the deadline is over; so does a read of the body.
            TooLarge: likewise.
            OSError: the server cannot be reached.
            HTTPException: it speaks no HTTP, or has closed the connection.
        """
        self._bounds.deadline, self._bounds.bytes_left = deadline, _HEAD_BYTES
        self.request("GET", target, headers=dict(headers or {}))
        response = self.getresponse()
        self._bounds.bytes_left += most_bytes
        return response

    def connect(self) -> None:
        sock = _connected(self.host, self.port, self._bounds)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls:
                sock.settimeout(self._bounds.seconds_left())
                sock = self._tls.wrap_socket(sock, server_hostname=self.host)
        except BaseException:
            sock.close()
            raise
        self.sock = _BoundedSocket(sock, self._bounds)


class _Bounds:
    """What is left of an exchange."""

    def __init__(self) -> None:
        self.deadline, self.bytes_left = 0.0, 0

    def seconds_left(self) -> float:
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("timed out")
        return seconds


class _BoundedSocket:
    """As much of a socket as `http.client` uses; what is left is looked at before each call."""

    def __init__(self, sock: socket.socket, bounds: _Bounds) -> None:
        self._sock, self._bounds = sock, bounds

    def sendall(self, data: bytes) -> None:
        self._sock.settimeout(self._bounds.seconds_left())
        self._sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self._sock, self._bounds))

    def close(self) -> None:
        self._sock.close()


class _Incoming(io.RawIOBase):
    def __init__(self, sock: socket.socket, bounds: _Bounds) -> None:
        self._sock, self._bounds = sock, bounds
        self._file = sock.makefile("rb", buffering=0)  # keeps the socket open for a body

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._bounds.bytes_left <= 0:
            raise TooLarge("its answer does not end")
        self._sock.settimeout(self._bounds.seconds_left())
        count = self._file.readinto(memoryview(buffer)[: self._bounds.bytes_left])
        self._bounds.bytes_left -= count or 0
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _connected(host: str, port: int, bounds: _Bounds) -> socket.socket:
    """Like `socket.create_connection`, whose timeout is one of each address."""
    failed: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        seconds = bounds.seconds_left()
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(seconds)
            sock.connect(address)
        except OSError as error:
            sock.close()
            failed = error
        else:
            return sock
    raise failed
