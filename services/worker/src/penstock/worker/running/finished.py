"""Jobs that have ended, on their way from the threads that ran them to the worker's loop."""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.worker.running.outcome import FinishedJob


class Finished:
    """Made in the loop that collects; :meth:`put` and :meth:`announce` may be called anywhere."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: deque[FinishedJob] = deque()
        self._announced = False
        self._event = asyncio.Event()

    def put(self, finished: FinishedJob) -> None:
        self._jobs.append(finished)

    def announce(self) -> None:
        """Wakes who waits in the loop, once for all that were put until it collects."""
        if not self._announced:
            self._announced = True
            try:
                self._loop.call_soon_threadsafe(self._event.set)
            except RuntimeError:
                if not self._loop.is_closed():  # else the worker is gone, and its jobs lapse
                    raise

    async def wait(self) -> None:
        """Until jobs were announced."""
        await self._event.wait()
        self._event.clear()

    def collect(self) -> list[FinishedJob]:
        """The jobs finished since the last call."""
        self._announced = False
        collected = []
        while self._jobs:
            collected.append(self._jobs.popleft())
        return collected
