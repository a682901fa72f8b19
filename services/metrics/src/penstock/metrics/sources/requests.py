"""GET requests of one server, for kinds that speak HTTP: bounded, and without redirects."""

from __future__ import annotations

import asyncio
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException, HTTPResponse
from urllib.parse import urlsplit

from penstock.metrics.sources.source import SourceAway, SourceSettings
from penstock.runtime.bounded_http import BoundedConnection, TooLarge

_MOST_BYTES = 4_000_000
_MOST_TRANSFERRED_BYTES = 2 * _MOST_BYTES
"""With what a chunked body has around its chunks."""
_PART_BYTES = 65_536
_MOST_REASON = 200


class Requests:
    """One connection to the server of ``url``, used by one thread of its own."""

    def __init__(self, settings: SourceSettings) -> None:
        address = urlsplit(settings.url)
        self._host, self._port = address.hostname or "", address.port
        self._is_tls = address.scheme == "https"
        self._headers = {"Accept": "application/json", "User-Agent": "penstock"}
        if settings.secret:
            self._headers["Authorization"] = settings.secret
        self._settings, self._timeout_seconds = settings, settings.timeout_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"source {settings.name}")
        self._connection: BoundedConnection | None = None

    async def get(self, target: str) -> bytes:
        """The body of the answer.

        Args:
            target: path and query.

        Raises:
            SourceAway: the server is not reached, answers with another status than 200, with too
                much or too slowly.
        """
        body = await self.find(target, absent_status=None)
        assert body is not None
        return body

    async def find(self, target: str, absent_status: int | None = 404) -> bytes | None:
        """As `get`; None where the server answers that there is nothing at the target.

        Args:
            absent_status: of such an answer.
        """
        # A cancelled look leaves the thread with its request, which ends by its own deadline; the
        # next look waits for it, so that there is one connection.
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._get, target, absent_status
        )

    async def close(self) -> None:
        """Closes the connection; at once, or when the request that runs has timed out."""
        self._thread.submit(self._drop)

    def _get(self, target: str, absent_status: int | None) -> bytes | None:
        deadline = time.monotonic() + self._timeout_seconds
        try:
            return self._ask(target, deadline, absent_status)
        except SourceAway:
            self._drop()
            raise
        except (OSError, HTTPException, ValueError) as error:
            self._drop()
            raise SourceAway(f"{self._host} {self._fault(error)}") from error

    def _ask(self, target: str, deadline: float, absent_status: int | None) -> bytes | None:
        try:
            response = self._answer(target, deadline)
        except (ConnectionError, HTTPException):
            # A server may close a connection that was idle: once more on a new one.
            self._drop()
            response = self._answer(target, deadline)
        if response.status not in (200, absent_status):
            hint = ", which is not followed" if 300 <= response.status < 400 else ""
            if response.status in (401, 403):
                hint = ": check the user and secret_file"
            raise SourceAway(f"{self._host} answered with status {response.status}{hint}")
        parts, size = [], 0
        while part := response.read1(_PART_BYTES):
            parts.append(part)
            size += len(part)
            if size > _MOST_BYTES:
                raise SourceAway(f"{self._host} answered with more than {_MOST_BYTES} bytes")
        response.close()  # read to its end: the connection can be used again
        return b"".join(parts) if response.status == 200 else None

    def _answer(self, target: str, deadline: float) -> HTTPResponse:
        connection = self._connection = self._connection or self._connect()
        return connection.get(
            target, self._headers, deadline=deadline, most_bytes=_MOST_TRANSFERRED_BYTES
        )

    def _connect(self) -> BoundedConnection:
        tls = ssl.create_default_context() if self._is_tls else None
        return BoundedConnection(self._host, self._port, tls)

    def _fault(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"gave no whole answer within {self._timeout_seconds:g} s"
        if isinstance(error, TooLarge):
            return f"cannot be read: {error}"
        return f"cannot be reached: {self._settings.shown(error)[:_MOST_REASON]}"

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
