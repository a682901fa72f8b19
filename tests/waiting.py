"""Waiting for something to become true: a deadline, never a sleep of a guessed length."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_LOOK_SECONDS = 0.01


async def eventually(
    condition: Callable[[], T | Awaitable[T]], within: float = 5.0, what: str = ""
) -> T:
    """The first truthy value of ``condition()`` (plain or async), looked at every 10 ms.

    Raises:
        AssertionError: it stayed falsy for ``within`` seconds; says what it was last.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        found = condition()
        value: T = await found if inspect.isawaitable(found) else found
        if value:
            return value
        if loop.time() >= deadline:
            raise AssertionError(f"{what or condition} still {value!r} after {within:g} s")
        await asyncio.sleep(_LOOK_SECONDS)
