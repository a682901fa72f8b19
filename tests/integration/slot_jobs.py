"""Jobs that wait beside each other in one process, and one that ends it."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from tests.integration.sample_jobs import write

from penstock.jobs import Context, job

_PATIENCE_SECONDS = 60.0


@job(queue="mail")
async def wait_soon(diary: str, name: str, gate: str) -> str:
    write(diary, name, "begun")
    until = time.monotonic() + _PATIENCE_SECONDS
    while not await asyncio.to_thread(os.path.exists, gate):
        assert time.monotonic() < until, f"nobody opened {gate}"
        await asyncio.sleep(0.05)
    write(diary, name, "done")
    return name


@job(queue="mail")
def wait(diary: str, name: str, gate: str) -> str:
    write(diary, name, "begun")
    until = time.monotonic() + _PATIENCE_SECONDS
    while not Path(gate).exists():
        assert time.monotonic() < until, f"nobody opened {gate}"
        time.sleep(0.05)
    write(diary, name, "done")
    return name


@job(queue="mail")
async def work_soon(seconds: float = 0.05) -> None:
    await asyncio.sleep(seconds)


@job(queue="mail", max_lost=2)
async def crash(context: Context, seconds: float = 0.02) -> None:
    """Takes its process along, each time."""
    await asyncio.sleep(seconds)
    os._exit(3)


@job(queue="mail", timeout_seconds=0.3, tries=1)
def hang(diary: str, name: str) -> None:
    """Nothing but the end of its process stops it."""
    write(diary, name, "begun")
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        try:
            time.sleep(0.01)
        except BaseException:
            write(diary, name, "shrugged")
