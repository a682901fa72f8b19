"""One connection to a beanstalkd server: reads figures and peeks at jobs.

Its protocol is in ``doc/protocol.txt`` of the server's sources; this is of release 1.12.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from penstock.metrics.sources.source import SourceAway, SourceSettings

Figures = Mapping[str, str]
MOST_JOB_BYTES = 1_000_000
"""Of a longer job the id is not read: the server puts the whole body after it."""
_MOST_FIGURES_BYTES = 65_536
_PART_BYTES = 65_536
_PORT = 11_300


class BeanstalkdClient:
    """Sends commands in one go and reads the answers in their order; connects when it has to."""

    def __init__(self, settings: SourceSettings) -> None:
        address = urlsplit(settings.url)
        self._host, self._port = address.hostname or "", address.port or _PORT
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def figures(self, commands: Sequence[str]) -> list[Figures | None]:
        """What these commands report, by name; None where the tube or job does not exist.

        Raises:
            SourceAway: the server is not reached, or answers otherwise.
        """
        async with self._answers(commands) as reader:
            return [await self._figures(reader) for _ in commands]

    async def next_jobs(self, tubes: Sequence[str]) -> dict[str, int]:
        """Ids of the jobs that are next in these tubes; a tube without one is left out.

        Raises:
            SourceAway: the server is not reached, or answers otherwise.
        """
        if not tubes:
            return {}
        # Only the tube in use can be peeked at, and `use` makes one that is not there. The server
        # drops an empty tube as soon as no client uses it: so none is used longer than this.
        commands = [command for tube in tubes for command in (f"use {tube}", "peek-ready")]
        async with self._answers([*commands, "use default"]) as reader:
            jobs = {}
            for tube in tubes:
                await self._expect(reader, "USING")
                jobs[tube] = await self._peeked(reader)
            await self._expect(reader, "USING")
        return {tube: job for tube, job in jobs.items() if job is not None}

    async def close(self) -> None:
        if self._streams is not None:
            writer = self._streams[1]
            self._drop()
            with suppress(OSError):
                await writer.wait_closed()

    @asynccontextmanager
    async def _answers(self, commands: Sequence[str]) -> AsyncIterator[asyncio.StreamReader]:
        """Drops the connection where not all answers are read, however that comes."""
        try:
            reader, writer = await self._connected()
            writer.write("".join(f"{command}\r\n" for command in commands).encode("ascii"))
            yield reader
        except OSError as error:
            self._drop()
            raise SourceAway(f"{self._host} cannot be reached: {str(error)[:200]}") from error
        except EOFError as error:
            self._drop()
            raise SourceAway(f"{self._host} closed the connection in mid-answer") from error
        except asyncio.LimitOverrunError as error:
            self._drop()
            raise SourceAway(f"{self._host} answered with no line of this protocol") from error
        except BaseException:
            self._drop()
            raise

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is not None and self._streams[0].at_eof():
            self._drop()  # the server closed it
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        return self._streams

    async def _figures(self, reader: asyncio.StreamReader) -> Figures | None:
        size = await self._expect(reader, "OK", absent="NOT_FOUND")
        if size is None:
            return None
        body = await reader.readexactly(self._bounded(size, _MOST_FIGURES_BYTES) + 2)
        lines = body.decode("utf-8", "replace").splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def _peeked(self, reader: asyncio.StreamReader) -> int | None:
        answer = await self._expect(reader, "FOUND", absent="NOT_FOUND")
        if answer is None:
            return None
        job, _, size = answer.partition(" ")
        left = self._bounded(size, MOST_JOB_BYTES) + 2
        while left:
            left -= len(await reader.readexactly(min(left, _PART_BYTES)))
        return int(job) if job.isdecimal() else None

    async def _expect(
        self, reader: asyncio.StreamReader, word: str, *, absent: str = ""
    ) -> str | None:
        """What follows the word in the next line; None where that line is ``absent``."""
        line = (await reader.readuntil(b"\r\n")).decode("utf-8", "replace").strip()
        if absent and line == absent:
            return None
        first, _, rest = line.partition(" ")
        if first != word:
            raise SourceAway(f"{self._host} answered {line[:80]!r}, expected {word}")
        return rest

    def _bounded(self, size: str, most: int) -> int:
        if not size.isdecimal() or len(size) > 12 or int(size) > most:
            raise SourceAway(
                f"{self._host} answered with {size[:20]!r} bytes, expected {most} at most"
            )
        return int(size)

    def _drop(self) -> None:
        if self._streams is not None:
            (_, writer), self._streams = self._streams, None
            writer.close()
