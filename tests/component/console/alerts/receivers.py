"""A real HTTP receiver and a real SMTP server on loopback, which can be slow or fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiosmtpd.smtp import SMTP, Envelope, Session


class HttpReceiver:
    """Notes what was posted, and answers as the test wants.

    Attributes:
        answers: statuses of the next requests; 200 after them. 0: close without an answer.
        delay: waited for before each answer; set to let it go on.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.bodies: list[bytes] = []
        self.answers: list[int] = []
        self.delay: asyncio.Event | None = None
        self.came = asyncio.Condition()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?a=1"

    @property
    def states(self) -> list[str]:
        """Each message in short, in order: ``firing``, ``resolved``."""
        return [body["alerts"][0]["kind"] for _, body in self.requests]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(10), self.came:
            await self.came.wait_for(lambda: len(self.requests) >= count)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            body = await reader.readexactly(int(headers["content-length"]))
            async with self.came:
                self.requests.append((headers, json.loads(body)))
                self.bodies.append(body)
                self.came.notify_all()
            if self.delay is not None:
                await self.delay.wait()
            status = self.answers.pop(0) if self.answers else 200
            if status:
                place = b"Location: http://127.0.0.1:1/\r\n" if status == 302 else b""
                writer.write(b"HTTP/1.1 %d X\r\n%sContent-Length: 0\r\n\r\n" % (status, place))
        finally:
            writer.close()


@asynccontextmanager
async def http_receiver() -> AsyncIterator[HttpReceiver]:
    receiver = HttpReceiver()
    server = await asyncio.start_server(receiver.serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


class Mailbox:
    """Messages that an SMTP server took."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.receivers: list[list[str]] = []
        self.came = asyncio.Event()
        self.refuses = False
        self.port = 0

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refuses:
            return "554 no"
        self.messages.append(bytes(envelope.content or b"").decode())
        self.receivers.append(list(envelope.rcpt_tos))
        self.came.set()
        return "250 OK"


@asynccontextmanager
async def smtp_server() -> AsyncIterator[Mailbox]:
    mailbox = Mailbox()
    server = await asyncio.get_running_loop().create_server(lambda: SMTP(mailbox), "127.0.0.1", 0)
    mailbox.port = server.sockets[0].getsockname()[1]
    try:
        yield mailbox
    finally:
        server.close()
