"""Waiting with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any


async def within(seconds: float, waited_for: Awaitable[Any]) -> bool:
    """Waits at most ``seconds``; False when that was not enough.

    Not `asyncio.wait_for`: up to Python 3.11 it swallows a cancellation that comes in the moment in
    which the wait ends (CPython issue 86296), and a loop that was told to stop goes on.
    """
    try:
        async with asyncio.timeout(seconds):
            await waited_for
    except TimeoutError:
        return False
    return True
