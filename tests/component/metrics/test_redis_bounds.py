"""A Redis server that answers without end: a look reads no more than it may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from penstock.config.sources import SourceTable
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
    with pytest.raises(SourceAway, match="answered with more than 64000000 bytes"):
        await source.look(["mail"])
    await source.close()
