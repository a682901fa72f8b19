"""Servers of each kind whose answers a test chooses, byte by byte: as a hostile system would."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
from pamqp import commands as amqp
from pamqp.frame import marshal

from penstock.config.sources import SourceTable

SECRET = "s3cret-of-the-source"
Answer = Callable[[bytes], bytes]
"""What a server sends for what it has just received."""


class Hostile(msgspec.Struct, frozen=True):
    """A kind under attack.

    Attributes:
        table: of the source, by the port of its server and the file with its secret.
        answer: of the server, around a figure as the attacker writes it.
        begin: what an answer without end begins with, which is sent by ``begun``.
        again: what follows for ever.
    """

    table: Callable[[int, Path], SourceTable]
    answer: Callable[[bytes], Answer]
    begin: bytes
    again: bytes
    begun: Callable[[bytes], Answer] = lambda begin: lambda _: begin


@asynccontextmanager
async def serving(answer: Answer, begin: bytes = b"", again: bytes = b"") -> AsyncIterator[int]:
    """The port of a server; after an answer that ends with ``begin``, ``again`` has no end."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with suppress(OSError, asyncio.CancelledError):
            while received := await reader.read(65_536):
                writer.write(sent := answer(received))
                while again and sent and sent.endswith(begin):
                    writer.write(again * (500_000 // len(again)))
                    await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)


# --- HTTP ---------------------------------------------------------------------------------------
def _page(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
_CHUNK = b"8000\r\n" + b" " * 0x8000 + b"\r\n"


def _http(template: bytes, kind: str, **options: str) -> Hostile:
    def table(port: int, secret: Path) -> SourceTable:
        url = f"http://127.0.0.1:{port}"
        return SourceTable(kind=kind, url=url, secret_file=str(secret), options=options)

    return Hostile(
        table, lambda figure: lambda _: _page(template.replace(b"@", figure)), _CHUNKED, _CHUNK
    )


# --- by what is received ------------------------------------------------------------------------
def _by_trigger(answers: Mapping[bytes, bytes]) -> Answer:
    return lambda received: b"".join(sent for sign, sent in answers.items() if sign in received)


def _amqp(declared: bytes) -> Answer:
    start = amqp.Connection.Start(
        server_properties={"capabilities": {}}, mechanisms="PLAIN", locales="en_US"
    )
    return _by_trigger(
        {
            b"AMQP": marshal(start, 0),
            b"\0\x0a\0\x0b": marshal(amqp.Connection.Tune(0, 131_072, 0), 0),
            b"\0\x0a\0\x28": marshal(amqp.Connection.OpenOk(), 0),
            b"\0\x14\0\x0a": marshal(amqp.Channel.OpenOk(), 1),
            b"\0\x14\0\x28": marshal(amqp.Channel.CloseOk(), 1),
            b"\0\x0a\0\x32": marshal(amqp.Connection.CloseOk(), 0),
            b"\0\x32\0\x0a": declared,
        }
    )


def _frame(body: bytes) -> bytes:
    return b"\x01" + struct.pack(">HI", 1, len(body)) + body + b"\xce"


def _closed_channel(text: bytes) -> bytes:
    short = text[:255]
    head = struct.pack(">HHHB", 20, 40, 404, len(short))
    return _frame(head + short + struct.pack(">HH", 50, 10))


def _message(sign: bytes, body: bytes = b"") -> bytes:
    return sign + struct.pack(">I", len(body) + 4) + body


def _row(cell: bytes) -> bytes:
    return _message(b"D", struct.pack(">HI", 1, len(cell)) + cell)


_COLUMN = struct.pack(">H", 1) + b"waiting\0" + struct.pack(">IHIhiH", 0, 0, 25, -1, -1, 0)
_PARSED = _message(b"1") + _message(b"2") + _message(b"T", _COLUMN)
_READY = _message(b"Z", b"I")


def _postgres(answer: bytes) -> Answer:
    began = _message(b"R", bytes(4)) + _message(b"S", b"client_encoding\0UTF8\0") + _READY
    return _by_trigger({b"user\0": began, b"select": answer})


def _postgres_table(port: int, secret: Path) -> SourceTable:
    url = f"postgresql://u@127.0.0.1:{port}/x?sslmode=disable&gssencmode=disable"
    options = {"query": "select 1 as waiting where %(queue)s = ''"}
    return SourceTable(kind="sql", url=url, secret_file=str(secret), options=options)


def _redis(executed: Callable[[int], bytes]) -> Answer:
    def answer(received: bytes) -> bytes:
        commands = (b"\r\n" + received).count(b"\r\n*")
        if b"EXEC" not in received:
            return b"+OK\r\n" * commands
        queued = commands - 2
        return b"+OK\r\n" + b"+QUEUED\r\n" * queued + executed(queued)

    return answer


def _redis_kind(kind: str, element: bytes, **options: str) -> Hostile:
    def table(port: int, secret: Path) -> SourceTable:
        url = f"redis://127.0.0.1:{port}"
        return SourceTable(kind=kind, url=url, secret_file=str(secret), options=options)

    def answer(figure: bytes) -> Answer:
        bulk = b"$%d\r\n%s\r\n" % (len(figure), figure)
        return _redis(lambda count: b"*%d\r\n" % count + element.replace(b"@", bulk) * count)

    return Hostile(
        table, answer, b"*90000000\r\n", b":1\r\n", lambda begin: _redis(lambda _: begin)
    )


def _beanstalkd(figure: bytes) -> Answer:
    names = ["ready", "reserved", "delayed"]
    tube = b"".join(b"current-jobs-%s: %s\n" % (name.encode(), figure) for name in names)
    rest = b"total-jobs: 1\ncmd-delete: 0\npause-time-left: 0\nid: x\nmax-job-size: 65535\n"
    body = b"---\n" + tube + rest
    stats = b"OK %d\r\n%s\r\n" % (len(body), body)
    return lambda received: stats * received.count(b"stats") or b"?\r\n"


def _beanstalkd_table(port: int, secret: Path) -> SourceTable:
    return SourceTable(kind="beanstalkd", url=f"beanstalkd://127.0.0.1:{port}")


def _kafka_table(port: int, secret: Path) -> SourceTable:
    return SourceTable(kind="kafka", url=f"kafka://127.0.0.1:{port}", options={"group": "g"})


def command_table(output: bytes, secret: Path) -> SourceTable:
    """A program that prints this; where it is nothing, it shows its secret and fails."""
    program = (
        "import os, sys\n"
        f"sys.stdout.buffer.write(bytes.fromhex({output.hex()!r}))\n"
        "secret = os.environ['PENSTOCK_SOURCE_SECRET']\n"
        "sys.stderr.write(secret + 'x' * 1_990 + secret + '\\n\\u202e\\x1b[2J')\n"
        f"sys.exit({int(not output)})\n"
    )
    command = (sys.executable, "-I", "-c", program)
    return SourceTable(kind="command", command=command, secret_file=str(secret))


_SQS = b"""{"QueueUrl": "http://127.0.0.1:1/mail", "Attributes": {
    "ApproximateNumberOfMessages": @, "ApproximateNumberOfMessagesNotVisible": @,
    "ApproximateNumberOfMessagesDelayed": @, "CreatedTimestamp": @}}"""
_RESULT = b'{"data": {"resultType": "scalar", "result": [1, @]}}'
_MANAGED = b'{"messages_ready": @, "messages_unacknowledged": @, "state": @}'
KINDS: dict[str, Hostile] = {
    "http": _http(b'{"depth": @, "epoch": @}', "http", waiting="depth", epoch="epoch"),
    "prometheus": _http(_RESULT, "prometheus", waiting="up"),
    "management": _http(_MANAGED, "rabbitmq"),
    "sqs": _http(_SQS, "sqs", region="eu-central-1"),
    "amqp": Hostile(
        lambda port, secret: SourceTable(
            kind="rabbitmq", url=f"amqp://u@127.0.0.1:{port}", secret_file=str(secret)
        ),
        lambda figure: _amqp(_closed_channel(figure)),
        b"\x01\0\x01\x3b\x9a\xca\0",  # a frame of a gigabyte
        bytes(500),
        _amqp,
    ),
    "sql": Hostile(
        _postgres_table,
        lambda figure: _postgres(_PARSED + _row(figure) + _message(b"C", b"SELECT 1\0") + _READY),
        _PARSED,
        _row(b"3"),
        _postgres,
    ),
    "celery": _redis_kind("celery", b"@"),
    "laravel": _redis_kind("laravel", b"@", prefix="app"),
    "rq": _redis_kind("rq", b"*3\r\n@@@"),
    "sidekiq": _redis_kind("sidekiq", b"*2\r\n@@"),
    "redis-stream": _redis_kind("redis-stream", b"*2\r\n@@", group="g"),
    "beanstalkd": Hostile(_beanstalkd_table, _beanstalkd, b"OK 60000\r\n", b"a: 1\n" * 100),
    "kafka": Hostile(_kafka_table, lambda figure: lambda _: figure * 9, b"\x7f", b"\x7f"),
}
"""Foreign servers, by the name of a kind or of one of its two ways."""
