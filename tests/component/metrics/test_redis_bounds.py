"""A Redis server that answers without end: a look reads no more than it may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.config.sources import SourceTable
from penstock.metrics.sources.bounded_reader import BoundedReader
from penstock.metrics.sources.registry import open_source
from penstock.metrics.sources.source import SourceAway

pytest.importorskip("redis")


@pytest.fixture
async def endless() -> AsyncIterator[int]:
    """The port of a server whose answer to a transaction has 900 GB."""
    writers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        while line := await reader.readline():
            if line.strip() in (b"CLIENT", b"MULTI", b"SELECT"):
                writer.write(b"+OK\r\n")
            elif line.strip() == b"HLEN":
                writer.write(b"+QUEUED\r\n")
            elif line.strip() == b"EXEC":
                writer.write(b"*1\r\n$900000000000\r\n")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    for writer in writers:
        writer.close()
    server.close()
    await server.wait_closed()


async def test_an_answer_without_end_is_not_read(endless: int) -> None:
    table = SourceTable(kind="celery", url=f"redis://127.0.0.1:{endless}")
    source = open_source("shop", table)
    with pytest.raises(SourceAway, match="answered with more than 16000000 bytes"):
        await source.look(["mail"])
    await source.close()


async def test_small_parts_count_more_than_their_bytes_and_leave_others_their_turn() -> None:
    stream = asyncio.StreamReader()
    stream.feed_data(b":1\r\n" * 10_000)
    reader, turns = BoundedReader(stream, 3_000_000), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task, lines = asyncio.create_task(other()), 0
    with pytest.raises(SourceAway, match="more than 3000000 bytes"):
        while await reader.readline():
            lines += 1
    assert 5_000 < lines < 6_000
    assert turns >= 5
    task.cancel()
