"""Where a worker's jobs come from: its queues, in strict priority order at every poll."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from penstock.bus.protocol import Bus, Delivery, Puller

_ONE_QUEUE_WAIT_SECONDS = 5.0
_MANY_QUEUES_SECONDS = 1.0
"""At most: each poll begins anew with the first queue."""


class Intake:
    """A worker's requests for jobs.

    Args:
        queues: the first has priority over the second, and so on.
        poll_seconds: how long one request stands; jobs that come meanwhile are delivered at once.
    """

    def __init__(self, bus: Bus, queues: Sequence[str], poll_seconds: float = 5.0) -> None:
        self._bus = bus
        self._queues = list(queues)
        self._poll_seconds = poll_seconds
        self._pullers: list[Puller] = [bus.puller(queue) for queue in queues]

    async def take(self, most: int, wait: bool) -> list[Delivery]:
        """Up to ``most`` jobs that are there; with ``wait``, else the first to come in a while.

        All from one queue. Cancelling it loses nothing.
        """
        if len(self._pullers) == 1:
            return await self._pullers[0].fetch(most, self._poll_seconds if wait else 0)
        for puller in self._pullers:
            if found := await puller.fetch(most, 0):
                return found
        return await self._first_of_all() if wait else []

    async def _first_of_all(self) -> list[Delivery]:
        seconds = min(self._poll_seconds, _MANY_QUEUES_SECONDS)
        tasks = [asyncio.ensure_future(puller.fetch(1, seconds)) for puller in self._pullers]
        wanted = 0
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            wanted = 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            found = [task.result() for task in tasks if _succeeded(task) and task.result()]
            await self._bus.give_back([one.ack_subject for more in found[wanted:] for one in more])
        for task in tasks if not found else ():
            if not task.cancelled():
                task.result()  # raises what is wrong with the broker
        return found[0] if found else []

    async def close(self) -> None:
        for puller in self._pullers:
            with suppress(Exception):
                await puller.close()


def _succeeded(task: asyncio.Task[list[Delivery]]) -> bool:
    return not task.cancelled() and task.exception() is None
