"""A connection whose request never gets whole is closed; one that waits for an answer is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from typing import Any

import pytest
import uvicorn
from tests.waiting import eventually

from penstock.console.web import slow_clients
from penstock.console.web.slow_clients import ImpatientProtocol

gone: list[str] = []
"""What the application was told after it sent a large answer."""


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers a whole request after longer than a request may take."""
    while (await receive()).get("more_body"):
        pass
    if scope["path"] == "/large":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * 2**24, "more_body": True})
        gone.append((await receive())["type"])
        return
    await asyncio.sleep(0.3)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


@pytest.fixture
async def port(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    monkeypatch.setattr(slow_clients, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(slow_clients, "_LOOK_SECONDS", 0.02)
    bound = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=ImpatientProtocol, lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
    serving = asyncio.create_task(server.serve([bound]))
    yield bound.getsockname()[1]
    server.should_exit = True
    await serving


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX-A: ", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\na"],
)
async def test_a_request_that_never_gets_whole_is_cut_off(port: int, sent: bytes) -> None:
    """Slowloris."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    with pytest.raises(ConnectionError):
        if await reader.read() == b"":
            raise ConnectionResetError
    writer.close()


async def test_an_answer_may_take_longer(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_requests_that_are_sent_without_waiting_are_bounded(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 5_000)
    with pytest.raises(ConnectionError):
        if await reader.read() == b"":
            raise ConnectionResetError
    writer.close()


async def test_a_few_requests_may_be_sent_at_once(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    for _ in range(3):
        await reader.readuntil(b"done")
    writer.close()


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone.clear()
    monkeypatch.setattr(slow_clients, "ANSWER_SECONDS", 0.2)
    deaf = socket.create_connection(("127.0.0.1", port))
    deaf.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    await eventually(lambda: gone == ["http.disconnect"], 10, "the end of the connection")
    deaf.close()


async def test_a_connection_without_use_makes_room(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slow_clients, "REQUEST_SECONDS", 60.0)
    monkeypatch.setattr(slow_clients, "MOST_CONNECTIONS", 2)
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    with pytest.raises(ConnectionError):
        if await idle[0][0].read() == b"":
            raise ConnectionResetError
    for _, open_writer in (*idle, (reader, writer)):
        open_writer.close()
