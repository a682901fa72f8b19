"""asyncio tasks that are kept until they end and whose errors are logged; waits with a limit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
log = logging.getLogger("penstock")


class Tasks:
    """The tasks of one owner.

    Args:
        failed: called with the error of a task that died, after it was logged.
    """

    def __init__(self, failed: Callable[[BaseException], None] | None = None) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def __bool__(self) -> bool:
        return bool(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Starts ``work`` in the running loop."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self, timeout_seconds: float | None = None) -> None:
        """Until all have ended, or that long."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_seconds)

    async def cancel(self) -> None:
        """Ends all of them."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s died: %r", task.get_name(), error, exc_info=error)
            if self._failed:
                self._failed(error)


async def within(seconds: float, waited_for: Awaitable[Any]) -> bool:
    """Waits at most ``seconds``; False when that was not enough.

    Not `asyncio.wait_for`: up to Python 3.11 it swallows a cancellation that comes in the moment in
    which the wait ends (CPython issue 86296), and a loop that was asked to stop goes on.
    """
    try:
        async with asyncio.timeout(seconds):
            await waited_for
    except TimeoutError:
        return False
    return True
