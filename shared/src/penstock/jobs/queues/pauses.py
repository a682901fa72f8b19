"""Pausing queues for all workers: the broker itself delivers none of their jobs.

The broker pauses the queue's consumer, which outlives its restarts. A record beside it holds who
did so and why, and since when a queue is resumed; the orchestrator makes the two agree where a
client died in between, or a consumer was made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import msgspec

from penstock.bus.protocol import Bus, Outgoing, QueueDepth, Stored
from penstock.events.envelope import Instant, encode, utc_now
from penstock.events.queue import QueueEvent, QueuePaused, QueueResumed
from penstock.events.subjects import Subjects, check_name

log = logging.getLogger("penstock.jobs")

_MOST = 10_000


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is or was paused.

    Attributes:
        queue: its name.
        paused: False: it was resumed at ``at``.
        at: when it was paused or resumed.
        reason: why.
        by: origin of the request.
    """

    queue: str
    paused: bool
    at: Instant
    reason: str = ""
    by: str = ""


class QueuePauses:
    """Pauses and resumes queues; ``source`` is what events and records name as the origin."""

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source

    async def pause(self, queue: str, reason: str = "") -> None:
        """From now on no worker is given its jobs. Idempotent. Raises BusError, BadName."""
        await self._set(queue, QueuePaused(queue=queue, source=self._source, reason=reason[:1000]))

    async def resume(self, queue: str) -> None:
        """Workers are given its jobs again. Idempotent. Raises BusError, BadName."""
        await self._set(queue, QueueResumed(queue=queue, source=self._source))

    async def _set(self, queue: str, event: QueueEvent) -> None:
        """The record first: the orchestrator completes what a crash interrupts after it."""
        check_name("queue", queue)
        paused = isinstance(event, QueuePaused)
        reason = event.reason if isinstance(event, QueuePaused) else ""
        record = Pause(queue=queue, paused=paused, at=utc_now(), reason=reason, by=self._source)
        subject = self._subjects.state("pause", queue)
        await self._bus.append(Outgoing(subject, msgspec.json.encode(record)))
        await self._bus.pause_queue(queue, paused)
        await self._bus.append(Outgoing(self._subjects.event(event), encode(event)))

    async def all(self) -> dict[str, Pause]:
        """Every queue that is or was paused, by name."""
        subject = self._subjects.state("pause", "*")
        stored = await self._bus.history(self._subjects.state_stream, subject, _MOST)
        pauses = (read(message) for message in stored)
        return {pause.queue: pause for pause in pauses if pause is not None}

    async def agree(self, depths: Iterable[QueueDepth]) -> None:
        """Pauses and resumes consumers as recorded. Raises BusError."""
        pauses = await self.all()
        for depth in depths:
            if (pause := pauses.get(depth.queue)) and pause.paused != depth.paused:
                what = "paused" if pause.paused else "resumed"
                log.info("queue %s is %s at the broker, as its record says", depth.queue, what)
                await self._bus.pause_queue(depth.queue, pause.paused)


def read(stored: Stored) -> Pause | None:
    """The record of a message; None, and a line in the log, where it cannot be read."""
    try:
        return msgspec.json.decode(stored.body, type=Pause)
    except (ValueError, RecursionError) as error:
        log.error("%s is no record of a pause: %s", stored.subject, error)
        return None


class Resumptions:
    """Since when queues are resumed: the wait of their jobs before does not count as lateness.

    Attributes:
        at: POSIX seconds, by queue.
    """

    def __init__(self) -> None:
        self.at: dict[str, float] = {}

    def note(self, pauses: Iterable[Pause]) -> None:
        self.at |= {one.queue: one.at.timestamp() for one in pauses if not one.paused}

    def on_record(self, _: str, body: bytes) -> None:
        """Reads a record as it is published."""
        try:
            self.note([msgspec.json.decode(body, type=Pause)])
        except (ValueError, RecursionError):
            return
