"""Pausing queues for all workers: the broker itself delivers none of their jobs.

The broker pauses the queue's consumer, which outlives its restarts. A record beside it holds who
did so and why, and since when a queue is resumed; the orchestrator makes the two agree where a
client died in between, or a consumer was made anew. A pause with an end is ended by the broker,
whichever processes run; the orchestrator records it afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from penstock.bus.protocol import Bus, Expect, Outgoing, QueueDepth, Stored, WrongSequence
from penstock.events.envelope import Instant, encode, utc_now
from penstock.events.queue import QUEUE_EVENTS, QueueEvent, QueuePaused, QueueResumed
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.errors import BadTime

log = logging.getLogger("penstock.jobs")

LONGEST_PAUSE = timedelta(days=30)
"""Of a pause that ends by itself; one without an end lasts until the queue is resumed."""
_MOST = 10_000


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A queue that is or was paused.

    Attributes:
        queue: its name.
        paused: False: it was resumed at ``at``.
        at: when it was paused or resumed.
        reason: why.
        by: origin of the request.
        until: when a pause ends by itself; None for one that does not.
    """

    queue: str
    paused: bool
    at: Instant
    reason: str = ""
    by: str = ""
    until: Instant | None = None

    def lasts(self, now: float) -> bool:
        """Whether the queue is paused now, POSIX seconds."""
        return self.paused and (self.until is None or self.until.timestamp() > now)

    @property
    def resumed_at(self) -> datetime | None:
        """When the queue was or will be resumed; None for a pause without an end."""
        return self.until if self.paused else self.at


class _Record(NamedTuple):
    """A stored pause and the sequence that a change of it expects."""

    sequence: int
    pause: Pause


class QueuePauses:
    """Pauses and resumes queues; ``source`` is what events and records name as the origin."""

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source

    async def pause(self, queue: str, reason: str = "", until: datetime | None = None) -> None:
        """From now on no worker is given its jobs. Idempotent; replaces a pause that is there.

        Args:
            queue: its name.
            reason: shown with the pause.
            until: when it ends by itself; None: when the queue is resumed.

        Raises:
            BusError: the broker does not answer or refuses.
            BadName: the name cannot be one of a queue.
            BadTime: ``until`` is over, too far away, or has no time zone.
        """
        end = None if until is None else checked_end(until, self._bus.now())
        event = QueuePaused(queue=queue, source=self._source, reason=reason[:1000], until=end)
        await self._set(queue, event)

    async def resume(self, queue: str) -> None:
        """Workers are given its jobs again. Idempotent. Raises BusError, BadName."""
        await self._set(queue, QueueResumed(queue=queue, source=self._source))

    async def _set(self, queue: str, event: QueueEvent) -> None:
        """The record first: the orchestrator completes what a crash interrupts after it."""
        check_name("queue", queue)
        record = Pause(queue=queue, paused=False, at=utc_now(), by=self._source)
        if isinstance(event, QueuePaused):
            changes = {"paused": True, "reason": event.reason, "until": event.until}
            record = msgspec.structs.replace(record, **changes)
        subject = self._subjects.state("pause", queue)
        await self._bus.append(Outgoing(subject, msgspec.json.encode(record)))
        await self._bus.pause_queue(queue, record.paused, record.until)
        await self._bus.append(Outgoing(self._subjects.event(event), encode(event)))

    async def all(self) -> dict[str, Pause]:
        """The last pause of every queue, by name; whether it lasts, :meth:`Pause.lasts` says."""
        return {record.pause.queue: record.pause for record in await self._records()}

    async def _records(self) -> list[_Record]:
        subject = self._subjects.state("pause", "*")
        stored = await self._bus.history(self._subjects.state_stream, subject, _MOST)
        pauses = ((message.sequence, read(message)) for message in stored)
        return [_Record(sequence, pause) for sequence, pause in pauses if pause is not None]

    async def agree(self, depths: Iterable[QueueDepth]) -> None:
        """Pauses and resumes consumers as recorded, and records pauses that ended by themselves.

        Raises:
            BusError: the broker does not answer or refuses.
        """
        by_queue = {depth.queue: depth for depth in depths}
        for record in await self._records():
            pause, depth = record.pause, by_queue.get(record.pause.queue)
            if pause.paused and not pause.lasts(self._bus.now()):
                await self._record_end(record)
            elif depth and (pause.paused, pause.until) != (depth.paused, depth.paused_until):
                what = "paused" if pause.paused else "resumed"
                log.info("queue %s is %s at the broker, as its record says", depth.queue, what)
                await self._bus.pause_queue(depth.queue, pause.paused, pause.until)

    async def _record_end(self, record: _Record) -> None:
        """The event first: what a crash interrupts after it is completed by the next look.

        Both are stored by compare-and-set, so that neither undoes a pause that came meanwhile.
        """
        queue, end = record.pause.queue, record.pause.until
        assert end is not None
        pattern = self._subjects.events("queue", queue)
        last = await self._bus.last(self._subjects.events_stream, pattern)
        paused = QUEUE_EVENTS.decode(last.body) if last else None
        resumed = QueueResumed(queue=queue, at=end, source=self._source)
        after = Pause(queue=queue, paused=False, at=end, by=self._source)
        try:
            if last and isinstance(paused, QueuePaused) and paused.until == end:
                condition = Expect(last.sequence, pattern)
                subject = self._subjects.event(resumed)
                await self._bus.append(Outgoing(subject, encode(resumed), expect=condition))
            subject, condition = self._subjects.state("pause", queue), Expect(record.sequence)
            body = msgspec.json.encode(after)
            await self._bus.append(Outgoing(subject, body, expect=condition))
        except WrongSequence:
            log.debug("queue %s was paused or resumed meanwhile", queue)
            return
        log.info("the pause of queue %s ended at %s", queue, end.isoformat())


def checked_end(until: datetime, now: float) -> datetime:
    """The end of a pause, in UTC.

    Args:
        until: as it was asked for.
        now: POSIX seconds.

    Raises:
        BadTime: it is over, too far away, or has no time zone.
    """
    if until.tzinfo is None:
        raise BadTime("until lacks its offset: 2027-01-01T06:00:00Z, or +01:00")
    try:
        end = until.astimezone(UTC)
    except OverflowError:
        raise BadTime("until is out of range") from None
    if end.timestamp() <= now:
        raise BadTime(f"until is over: {end.isoformat()}; a pause ends in the future")
    if end.timestamp() > now + LONGEST_PAUSE.total_seconds():
        raise BadTime(
            f"a pause ends within {LONGEST_PAUSE.days} days; one without an end lasts until the "
            "queue is resumed"
        )
    return end


def read(stored: Stored) -> Pause | None:
    """The record of a message; None, and a line in the log, where it cannot be read."""
    try:
        return msgspec.json.decode(stored.body, type=Pause)
    except (ValueError, RecursionError) as error:
        log.error("%s is no record of a pause: %s", stored.subject, error)
        return None


class Resumptions:
    """Since when queues are resumed: the wait of their jobs before does not count as lateness.

    A pause with an end is resumed then, whether or not the orchestrator records it.
    """

    def __init__(self) -> None:
        self._resumed_at: dict[str, float] = {}

    def last(self, queue: str, now: float) -> float:
        """When the queue was last resumed; 0 where that is not known. In POSIX seconds."""
        resumed_at = self._resumed_at.get(queue, 0.0)
        return resumed_at if resumed_at <= now else 0.0

    def note(self, pauses: Iterable[Pause]) -> None:
        for pause in pauses:
            if pause.resumed_at is not None:
                self._resumed_at[pause.queue] = pause.resumed_at.timestamp()

    def on_record(self, _: str, body: bytes) -> None:
        """Reads a record as it is published."""
        try:
            self.note([msgspec.json.decode(body, type=Pause)])
        except (ValueError, RecursionError):
            return
