"""Where a worker's jobs come from: its queues, in strict priority order at every poll."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import chain

from penstock.bus.protocol import Bus, Delivery, Puller
from penstock.jobs.queues.discovery import DISCOVER_SECONDS, QueueDiscovery
from penstock.runtime.workers.assignment import Assignment

_MANY_QUEUES_SECONDS = 1.0
"""Longest poll of several queues: each poll begins with the first queue again."""
_KEPT_SECONDS = 30.0
"""A discovered queue that is empty is asked for so long, since its next job may come at once."""


def intake_of(bus: Bus, assignment: Assignment) -> Intake:
    """The intake of a worker; that of the default pool's finds further queues."""
    settings = assignment.settings
    is_default = assignment.pool == settings.default_pool
    discovery = QueueDiscovery(bus, settings) if is_default else None
    return Intake(bus, assignment.queues, settings.jobs.poll_seconds, discovery)


class Intake:
    """A worker's requests for jobs.

    Args:
        queues: the first has priority over the second, and so on.
        poll_seconds: how long one request stands; jobs that come meanwhile are delivered at once.
        discovery: finds further queues, which come after these, and among each other in turn.
    """

    def __init__(
        self,
        bus: Bus,
        queues: Sequence[str],
        poll_seconds: float = 5.0,
        discovery: QueueDiscovery | None = None,
    ) -> None:
        self._bus = bus
        self._poll_seconds = poll_seconds
        self._own = {queue: bus.puller(queue) for queue in queues}
        self._discovery, self._discover_at = discovery, 0.0
        self._discovered: dict[str, Puller] = {}
        self._seen_at: dict[str, float] = {}

    def queues(self) -> Iterable[str]:
        """All that are asked now, the first ones first."""
        return chain(self._own, self._discovered)

    async def take(self, most: Callable[[str], int], wait: bool) -> list[Delivery]:
        """Jobs that are there, all of one queue; with ``wait``, else the first to come in a while.

        Cancelling it loses nothing.

        Args:
            most: how many of a queue may be taken; where it is none, this queue and those behind
                it are not asked: nothing of theirs is claimed before its jobs.
        """
        if self._discovery is not None:
            await self._discover(self._discovery)
        elif len(self._own) == 1:
            [(queue, puller)] = self._own.items()
            return await puller.fetch(most(queue), self._poll_seconds if wait else 0)
        for queue, puller in [*self._own.items(), *self._discovered.items()]:
            if not (count := most(queue)):
                return []
            if deliveries := await puller.fetch(count, 0):
                if queue in self._discovered:  # the others come first now
                    self._discovered[queue] = self._discovered.pop(queue)
                return deliveries
        return await self._first_of_all() if wait else []

    async def _discover(self, discovery: QueueDiscovery) -> None:
        now = time.monotonic()
        if now < self._discover_at:
            return
        for queue in await discovery.queues():
            self._seen_at[queue] = now
            if queue not in self._discovered:
                self._discovered[queue] = self._bus.puller(queue)
        self._discover_at = now + DISCOVER_SECONDS
        for queue, seen_at in list(self._seen_at.items()):
            if now - seen_at > _KEPT_SECONDS:
                del self._seen_at[queue]
                await self._discovered.pop(queue).close()

    async def _first_of_all(self) -> list[Delivery]:
        seconds = min(self._poll_seconds, _MANY_QUEUES_SECONDS)
        pullers = (*self._own.values(), *self._discovered.values())
        tasks = [asyncio.ensure_future(puller.fetch(1, seconds)) for puller in pullers]
        wanted = 0
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            wanted = 1
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            batches = [task.result() for task in tasks if _succeeded(task) and task.result()]
            surplus = [one.ack_subject for batch in batches[wanted:] for one in batch]
            await self._bus.give_back(surplus)
        for task in tasks if not batches else ():
            if not task.cancelled():
                task.result()  # raises what is wrong with the broker
        return batches[0] if batches else []

    async def close(self) -> None:
        for puller in (*self._own.values(), *self._discovered.values()):
            with suppress(Exception):
                await puller.close()


def _succeeded(task: asyncio.Task[list[Delivery]]) -> bool:
    return not task.cancelled() and task.exception() is None
