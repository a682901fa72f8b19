"""Requests to a console: one after another for their latency, or as many as it answers."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from typing import Any
from urllib.parse import quote

from console_load import FUNCTIONS, HOSTS, QUEUES, RARE_TAG, TAGS

FILTERS = {
    "all": "",
    "state, many": "state:completed",
    "state, few": "state:dead",
    "queue": f"queue:{QUEUES[7]}",
    "function": f"function:{FUNCTIONS[13]}",
    "queue and state, many": f"queue:{QUEUES[7]} state:completed",
    "queue and state, few": f"queue:{QUEUES[7]} state:dead",
    "function and state, few": f"function:{FUNCTIONS[13]} state:dead",
    "function of another queue": f"function:{FUNCTIONS[13]} queue:{QUEUES[1]}",
    "batch": "batch:batch-2",
    "host": f"host:{HOSTS[3]}",
    "host and state, few": f"host:{HOSTS[3]} state:dead",
    "tag": f"tag:{TAGS[17]}",
    "tag, rare": f"tag:{RARE_TAG}",
    "error": "state:dead error:timeout",
    "error, without state": "error:OutOfStock",
    "text": "function_13",
    "text that none has": "zzzz",
}
"""By what it is; as a person types it."""


def list_path(words: str, limit: int = 50, cursor: str = "") -> str:
    """Path of a list of jobs."""
    after = f"&cursor={quote(cursor)}" if cursor else ""
    return f"/api/v1/jobs?limit={limit}&q={quote(words)}{after}"


class Caller:
    """One connection, one request after another."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def get(self, path: str) -> tuple[float, Any]:
        """Seconds from the request to the whole answer, and the answer.

        Raises:
            RuntimeError: it is not 200.
        """
        began = time.perf_counter()
        self._connection.request("GET", path)
        answer = self._connection.getresponse()
        body = answer.read()
        seconds = time.perf_counter() - began
        if answer.status != http.HTTPStatus.OK:
            raise RuntimeError(f"{path}: {answer.status} {body[:500]!r}")
        is_json = "json" in (answer.headers["content-type"] or "")
        return seconds, json.loads(body) if is_json else body

    def close(self) -> None:
        self._connection.close()


async def answers_within(
    port: int, path: str, seconds: float, connections: int, etag: str = ""
) -> int:
    """How many requests are answered, by connections that each send the next one at once.

    Args:
        etag: of an answer that the caller has; each is then 304.

    Raises:
        RuntimeError: an answer is not as expected.
    """
    condition = f"If-None-Match: {etag}\r\n" if etag else ""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{condition}\r\n".encode()
    expected = b"HTTP/1.1 304" if etag else b"HTTP/1.1 200"
    end = time.monotonic() + seconds

    async def ask() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        count = 0
        while time.monotonic() < end:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(expected):
                raise RuntimeError(f"{path}: {head[:200]!r}")
            if size := content_length(head):
                await reader.readexactly(size)
            count += 1
        writer.close()
        return count

    return sum(await asyncio.gather(*(ask() for _ in range(connections))))


def etag_of(port: int, path: str) -> str:
    """That of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.headers["etag"] or ""


def content_length(head: bytes) -> int:
    """Of a message, from its header block; 0 where none is named."""
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0
