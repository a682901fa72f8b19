"""What a client library reads of a connection: no more than it may, and not for long at a time."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from penstock.metrics.sources.source import SourceAway

_PART_BYTES = 500
"""Each part counts as so many bytes more: one of two bytes becomes an object of its own."""
_PARTS_IN_A_ROW = 1_000
"""What has come is read without a wait; after so many parts other tasks have their turn."""


class BoundedReader:
    """As much of an `asyncio.StreamReader` as redis-py and aiormq use.

    Attributes:
        refusal: why no more was read; empty where nothing was refused.

    Args:
        most_bytes: that are read until `begin` is called again; more raises SourceAway.
    """

    def __init__(self, reader: asyncio.StreamReader, most_bytes: int) -> None:
        self._reader, self._most_bytes = reader, most_bytes
        self._buffer = reader._buffer  # type: ignore[attr-defined]  # redis-py looks at it
        self._bytes_left, self._parts = most_bytes, 0
        self.refusal = ""

    def begin(self) -> None:
        """Something else is asked."""
        self._bytes_left = self._most_bytes

    def at_eof(self) -> bool:
        return self._reader.at_eof()

    async def read(self, most: int) -> bytes:
        return await self._counted(await self._reader.read(most))

    async def readline(self) -> bytes:
        return await self._counted(await self._reader.readline())

    async def readexactly(self, size: int) -> bytes:
        if size > self._bytes_left:
            self._refuse()
        return await self._counted(await self._reader.readexactly(size))

    async def _counted(self, part: bytes) -> bytes:
        self._bytes_left -= len(part) + _PART_BYTES
        if self._bytes_left < 0:
            self._refuse()
        self._parts += 1
        if self._parts % _PARTS_IN_A_ROW == 0:
            await asyncio.sleep(0)
        return part

    def _refuse(self) -> NoReturn:
        self.refusal = f"the server answered with more than {self._most_bytes} bytes"
        raise SourceAway(self.refusal)
