"""First jobs: a listener on each idle queue, gone after one message: a busy queue costs nothing."""

from __future__ import annotations

import asyncio

from penstock.bus.protocol import Bus, Subscription
from penstock.events.subjects import Subjects
from penstock.metrics.core.queue import Queue


class FirstJobs:
    """Listens for the first job of idle queues.

    Attributes:
        rang: set when a first job has come since :meth:`take`.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self.rang = asyncio.Event()
        self._woken: set[str] = set()
        self._bus = bus
        self._subjects = subjects
        self._armed: dict[str, Subscription] = {}

    def take(self) -> set[str]:
        """Queues whose first job came since the last call."""
        woken, self._woken = self._woken, set()
        self.rang.clear()
        return woken

    async def arm(self, queue: Queue) -> None:
        """Listens where nothing happens; stops where jobs have arrived without the listener."""
        armed = queue.name in self._armed
        if queue.is_idle and not armed:
            self._armed[queue.name] = await self._bus.listen(
                self._subjects.queue(queue.name), self._on_job, at_most=1
            )
        elif armed and queue.arrived:
            await self._armed.pop(queue.name).unsubscribe()

    def _on_job(self, subject: str, _: bytes) -> None:
        name = subject.rpartition(".")[2]
        self._armed.pop(name, None)
        self._woken.add(name)
        self.rang.set()

    async def close(self) -> None:
        for subscription in self._armed.values():
            await subscription.unsubscribe()
        self._armed.clear()
