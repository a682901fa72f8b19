"""Work that ends when it is cancelled, also where one cancellation is lost on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_AGAIN_SECONDS = 0.1


async def in_time(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work`` within ``seconds``; it has ended when this returns or raises.

    ``asyncio.timeout`` cancels once. ``asyncio.wait_for`` of Python 3.11, with which nats-py waits
    for a server, drops a cancellation that comes in the same turn of the loop as the answer, and
    nats-py then goes on to the next server, for ever.

    Raises:
        TimeoutError: it took longer.
    """
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.wait((doing,), timeout=seconds)
        if doing.done():
            return doing.result()
    finally:
        await end(doing)
    raise TimeoutError


async def end(task: asyncio.Future[Any]) -> None:
    """Cancels ``task`` until it has ended; its exception stays in it."""
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()  # retrieved: nothing is logged about it
