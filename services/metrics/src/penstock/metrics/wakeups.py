"""First jobs: a listener on each idle queue, gone after one message: a busy queue costs nothing."""

from __future__ import annotations

import asyncio

from penstock.bus.protocol import Bus, Subscription
from penstock.events.subjects import Subjects
from penstock.metrics.core.queue import Queue


class FirstJobs:
    """Attributes:
    heard: queues whose first job was heard since :meth:`take`.
    rang: set when there is one.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self.rang = asyncio.Event()
        self._heard: set[str] = set()
        self._bus = bus
        self._subjects = subjects
        self._armed: dict[str, Subscription] = {}

    def take(self) -> set[str]:
        heard, self._heard = self._heard, set()
        self.rang.clear()
        return heard

    async def arm(self, queue: Queue) -> None:
        """Listens where nothing happens, and stops where something did without being heard."""
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
        self._heard.add(name)
        self.rang.set()

    async def close(self) -> None:
        for subscription in self._armed.values():
            await subscription.unsubscribe()
        self._armed.clear()
