"""The bus in memory: for tests of those who use the platform, and for its own.

It fulfils :class:`penstock.bus.protocol.Bus` with the manners of NATS, the bad ones included: late
acknowledgements are not fenced, a give-back counts as a delivery. For one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from penstock.bus.patterns import matches
from penstock.bus.protocol import (
    FOLLOW_BATCH,
    BusError,
    BusRefused,
    BusUnavailable,
    Delivery,
    Extent,
    Outgoing,
    QueueDepth,
    Stored,
)
from penstock.config import Settings
from penstock.testing.memory.broker import Handler, Listening, MemoryBroker
from penstock.testing.memory.streams import Stream

B = TypeVar("B", bound="MemoryBus")
_BATCH_LIMIT = 1000


class MemoryBus:
    """A client of an in-memory broker; :meth:`client` gives another of the same broker.

    Args:
        prefix: first token of every subject.
        settings: where claim time and prefix come from instead.
        now: POSIX seconds; after moving an injected clock call :meth:`tick`.
        ahead_seconds: how far that clock was moved: events are stored with times of it.

    Attributes:
        in_process: its workers are in this process, and know every function that is marked here.
    """

    in_process = True

    def __init__(
        self,
        prefix: str = "penstock",
        *,
        settings: Settings | None = None,
        now: Callable[[], float] = time.time,
        ahead_seconds: Callable[[], float] = float,
    ) -> None:
        self._broker = MemoryBroker(settings or Settings(prefix=prefix), now, ahead_seconds)
        self.subjects = self._broker.subjects
        self._listening: list[Listening] = []
        self._closed = False

    def now(self) -> float:
        return self._broker.now()

    @property
    def connected(self) -> bool:
        return not self._closed

    def client(self) -> MemoryBus:
        return self.share(MemoryBus)

    def share(self, kind: type[B]) -> B:
        """Another client of the same broker, of a class of its own."""
        other = object.__new__(kind)
        other._broker, other.subjects = self._broker, self.subjects
        other._listening, other._closed = [], False
        return other

    def cut(self) -> None:
        """Nothing comes through any more, as when the network is cut."""
        self._closed = True

    def due_times(self) -> dict[str, float]:
        """When the schedules that the broker keeps are due, POSIX seconds, by their subjects."""
        return self._broker.due_times()

    def tick(self) -> None:
        """Lets what an injected clock made due happen."""
        self._broker.settle()

    def fire(self, subject: str) -> None:
        """Lets a schedule happen now, whenever it is due."""
        self._broker.fire(subject)

    def stored(self, stream: str, subject: str) -> list[Stored]:
        """Messages stored under a subject now, oldest first (wildcards allowed)."""
        source = self._broker.stream(stream)
        return source.history(subject, len(source.messages))

    def _open(self) -> MemoryBroker:
        if self._closed:
            raise BusUnavailable("this client of the in-memory bus is closed")
        return self._broker

    # --- storing ---------------------------------------------------------------------------------
    async def append(self, message: Outgoing) -> int:
        return self._open().append(message)

    async def append_many(self, messages: Sequence[Outgoing]) -> list[int | BusError]:
        answers: list[int | BusError] = []
        for message in messages:
            try:
                answers.append(self._open().append(message))
            except BusError as error:
                answers.append(error)
        return answers

    async def append_atomic(self, messages: Sequence[Outgoing]) -> int:
        if not 1 <= len(messages) <= _BATCH_LIMIT:
            raise ValueError(
                f"an atomic batch holds 1 to {_BATCH_LIMIT} messages, found {len(messages)}"
            )
        broker = self._open()
        first = broker.stream_of(messages[0])
        if len(messages) > 1 and not first.allows_atomic:
            raise BusRefused(f"{messages[0].subject}: atomic publish is disabled")
        if any(broker.stream_of(message) is not first for message in messages):
            raise BusRefused(f"{messages[0].subject}: an atomic batch is for one stream")
        for message in messages:  # NATS counts none of the batch's own for a wildcard either
            if message is messages[0] or (message.expect and message.expect.subject):
                first.check(message)
        rest = [msgspec.structs.replace(message, expect=None) for message in messages[1:]]
        messages = [messages[0], *rest]  # a later condition says nothing of what lies before it
        return [broker.store(first, message) for message in messages][-1]

    # --- reading what is stored ------------------------------------------------------------------
    async def last(self, stream: str, subject: str) -> Stored | None:
        return self._open().stream(stream).last(subject)

    async def last_of(
        self, stream: str, subjects: Sequence[str], before: int = 0
    ) -> dict[str, Stored]:
        held = self._open().stream(stream)
        last = {subject: held.last(subject, before) for subject in subjects}
        return {subject: message for subject, message in last.items() if message}

    async def next(self, stream: str, subject: str, sequence: int) -> Stored | None:
        return self._open().stream(stream).next(subject, sequence)

    async def history(
        self, stream: str, subject: str, limit: int = 1000, start: int = 1
    ) -> list[Stored]:
        return self._open().stream(stream).history(subject, limit, start)

    async def count(self, stream: str, subject: str) -> dict[str, int]:
        return self._open().stream(stream).count(subject)

    async def adapt_streams(self, extra_bytes: int = 0) -> None:
        self._open().stream(self.subjects.events_stream).extra_bytes = extra_bytes

    async def extent(self, stream: str) -> Extent:
        return self._open().stream(stream).extent()

    async def remove(self, stream: str, subject: str, before: int = 0) -> None:
        broker = self._open()
        broker.remove(broker.stream(stream), subject, before)

    async def remove_each(self, stream: str, bounds: Mapping[str, int]) -> None:
        for subject, before in bounds.items():
            await self.remove(stream, subject, before)

    async def remove_message(self, stream: str, sequence: int) -> None:
        broker = self._open()
        broker.remove_message(broker.stream(stream), sequence)

    def follow(
        self,
        stream: str,
        subjects: Sequence[str],
        start: str | int = "new",
        most: int = FOLLOW_BATCH,
    ) -> AsyncIterator[Stored]:
        source = self._open().stream(stream)
        first: list[Stored] = []
        position = source.last_sequence + 1
        if start == "last":
            lasts = [s for pattern in subjects for s in source.last_per_subject(pattern)]
            first = sorted(lasts, key=lambda stored: stored.sequence)
        elif start != "new":
            position = 1 if start == "all" else int(start)
        return self._follow(source, tuple(subjects), first, position)

    async def _follow(
        self, source: Stream, subjects: tuple[str, ...], first: list[Stored], position: int
    ) -> AsyncIterator[Stored]:
        for stored in first:
            yield stored
        while True:
            while position <= source.last_sequence:
                message = source.messages.get(position)
                position += 1
                if message and any(matches(pattern, message.subject) for pattern in subjects):
                    yield message
            await self._open().change(source)

    # --- queues ----------------------------------------------------------------------------------
    async def ensure_queue(self, queue: str) -> None:
        self._open().ensure_queue(queue)

    def puller(self, queue: str) -> MemoryPuller:
        return MemoryPuller(self, queue)

    async def take(self, queue: str, batch: int, wait_seconds: float) -> list[Delivery]:
        """See :meth:`penstock.bus.protocol.Puller.fetch`; nothing is taken while it waits."""
        deadline = asyncio.get_running_loop().time() + wait_seconds
        while True:
            broker = self._open()
            held = broker.ensure_queue(queue)
            deliveries = broker.take(held, batch)
            if deliveries or wait_seconds <= 0:
                return deliveries
            try:
                async with asyncio.timeout_at(deadline):
                    await broker.change(held)
            except TimeoutError:
                return []

    async def pause_queue(self, queue: str, paused: bool, until: datetime | None = None) -> None:
        held = self._open().ensure_queue(queue)
        held.paused, held.paused_until = paused, until if paused else None
        self._broker.alarm(held.next_lapse())
        self._broker.ring(held)

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            if place := self._open().queue_of(delivery.ack_subject):
                place[0].ack(place[1])

    async def give_back(self, ack_subjects: Sequence[str], delay_seconds: float = 0.0) -> None:
        broker = self._open()
        for ack_subject in ack_subjects:
            if place := broker.queue_of(ack_subject):
                if delay_seconds:
                    broker.alarm(place[0].hold_back(place[1], broker.now() + delay_seconds))
                else:
                    place[0].give_back(place[1])
                    broker.ring(place[0])

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        broker = self._open()
        for delivery in deliveries:
            if place := broker.queue_of(delivery.ack_subject):
                broker.alarm(place[0].extend(place[1], broker.now()))

    async def depths(self) -> dict[str, QueueDepth]:
        broker = self._open()
        broker.settle()
        return {depth.queue: depth for depth in (q.depth() for q in broker.queues.values())}

    # --- signals ---------------------------------------------------------------------------------
    async def signal(self, subject: str, body: bytes = b"") -> None:
        self._open().pass_on(subject, body)

    async def listen(self, subject: str, handler: Handler, at_most: int = 0) -> Listening:
        listening = Listening(self._open().listeners, subject, handler, at_most)
        self._listening.append(listening)
        return listening

    async def close(self) -> None:
        self._closed = True
        for listening in self._listening:
            await listening.unsubscribe()
        self._broker.ring_all()


class MemoryPuller:
    """A queue's :class:`penstock.bus.protocol.Puller`: holds nothing between fetches."""

    def __init__(self, bus: MemoryBus, queue: str) -> None:
        self._bus, self._queue = bus, queue

    async def fetch(self, batch: int, wait_seconds: float) -> list[Delivery]:
        return await self._bus.take(self._queue, batch, wait_seconds)

    async def close(self) -> None:
        pass
