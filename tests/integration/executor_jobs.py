"""Jobs that the executor's tests run."""

from __future__ import annotations

import asyncio
import os

from penstock.jobs import job


@job(queue="mail")
def quick() -> int:
    return os.getpid()


@job(queue="mail")
async def slow(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()
