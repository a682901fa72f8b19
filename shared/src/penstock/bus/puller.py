"""One process's request for the jobs of a queue, on NATS."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import nats.errors

from penstock.bus.protocol import BusUnavailable, Delivery
from penstock.bus.pull import delivery

if TYPE_CHECKING:
    from penstock.bus.nats import NatsBus

log = logging.getLogger("penstock.bus")

_FIRST_WAIT_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.2
_MISSING_LOGGED = 300
"""One line of so many refused pulls, about a minute's."""


class NatsPuller:
    """A queue's :class:`penstock.bus.protocol.Puller`."""

    def __init__(self, bus: NatsBus, queue: str) -> None:
        self._bus, self._queue = bus, queue
        self._inbox = bus.queue_inbox(queue)
        self._missing = 0

    async def fetch(self, batch: int, wait_seconds: float) -> list[Delivery]:
        bus = self._bus
        if bus.makes_queues:
            await bus.ensure_queue(self._queue)
        try:
            raw = await self._inbox.take(batch, wait_seconds)
        except nats.errors.Error as error:
            raise BusUnavailable(f"not connected to the broker: {error!r}") from error
        if not self._inbox.trouble:
            self._missing = 0
        elif self._inbox.has_no_consumer and not bus.makes_queues:
            if self._missing % _MISSING_LOGGED == 0:
                log.info("queue %s has no consumer yet; the orchestrator makes it", self._queue)
            self._missing += 1
            await bus.ensure_queue(self._queue)
            await asyncio.sleep(min(_FIRST_WAIT_SECONDS * self._missing, _LONGEST_WAIT_SECONDS))
        else:
            log.warning("queue %s: %s", self._queue, self._inbox.trouble)
            bus.forget_queue(self._queue)
            await asyncio.sleep(0.2)
        return [delivery(*message) for message in raw]

    async def close(self) -> None:
        self._bus.forget_inbox(self._inbox)
        with suppress(nats.errors.Error, TimeoutError):
            await self._inbox.close()
