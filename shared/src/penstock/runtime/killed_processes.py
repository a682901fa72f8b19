"""The end of a subprocess of asyncio that was killed."""

from __future__ import annotations

import asyncio

_PART_BYTES = 65_536


async def wait_for_end(process: asyncio.subprocess.Process) -> None:
    """Returns when the process has ended. Its output must have no other reader any more.

    asyncio reports no end of a process before its pipes are read to theirs. One that was started by
    it, and lives on, can hold them open for ever: kill the group, or set a limit.
    """
    await asyncio.gather(_drain(process.stdout), _drain(process.stderr))
    await process.wait()


async def _drain(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(_PART_BYTES):
        pass
