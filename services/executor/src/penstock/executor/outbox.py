"""Events on their way to the broker: in order, again and again until it takes them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from itertools import islice

from penstock.bus.protocol import Bus, BusError, BusUnavailable, Outgoing
from penstock.events.envelope import Event, encode
from penstock.events.subjects import Subjects
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.executor")

_MOST_WAITING = 10_000
_BATCH = 100


class Outbox:
    """Holds events while the broker is away; past 10,000 the oldest are dropped, and logged."""

    def __init__(self, bus: Bus, subjects: Subjects, retry_seconds: float = 0.5) -> None:
        self._bus, self._subjects, self._retry_seconds = bus, subjects, retry_seconds
        self._waiting: deque[Outgoing] = deque()
        self._filled = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()

    def put(self, event: Event, headers: dict[str, str] | None = None) -> None:
        """Takes an event; the broker drops a second copy, so that it may be sent again."""
        if len(self._waiting) >= _MOST_WAITING:
            log.error("the broker is away too long: event %s is lost", self._waiting.popleft())
        self._waiting.append(
            Outgoing(
                self._subjects.event(event),
                encode(event),
                {"Nats-Msg-Id": event.id, **(headers or {})},
            )
        )
        self._filled.set()
        self._emptied.clear()

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._filled.wait()
            # A loop of its own, no retry helper: without end, in order, and woken by new events.
            if not await self._send_some():
                await asyncio.sleep(self._retry_seconds)
            if not self._waiting:
                self._filled.clear()
                self._emptied.set()

    async def flush(self, within_seconds: float) -> bool:
        """Waits until all is sent; False when it took longer."""
        if not await within(within_seconds, self._emptied.wait()):
            log.warning("%d events could not be sent", len(self._waiting))
            return False
        return True

    async def _send_some(self) -> bool:
        """One batch; what the broker refuses for good is logged and dropped."""
        batch = list(islice(self._waiting, _BATCH))
        try:
            answers = await self._bus.append_many(batch)
        except BusUnavailable:  # all of the batch is sent again; the broker drops copies
            return False
        except BusError as error:
            log.error("a batch of events cannot be sent: %s", error)
            answers = [error] * len(batch)
        for message, answer in zip(batch, answers, strict=True):
            if isinstance(answer, BusUnavailable):
                return False
            if isinstance(answer, BusError):
                log.error("event on %s was refused: %s", message.subject, answer)
            self._waiting.popleft()
        return True
