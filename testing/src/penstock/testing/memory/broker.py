"""The broker that clients of the in-memory bus share: streams, queues, schedules, time."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from penstock.bus import streams
from penstock.bus.patterns import matches
from penstock.bus.protocol import BusRefused, Delivery, Outgoing, PayloadTooLarge
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.testing.memory.moved_time import with_moved_time
from penstock.testing.memory.queue import NEVER, Queue, place_of
from penstock.testing.memory.streams import Stream

log = logging.getLogger("penstock.bus")

Handler = Callable[[str, bytes], Awaitable[None] | None]

MAX_PAYLOAD_BYTES = 1024 * 1024 - 512
"""Body and headers; NATS's default, less the headers that the bus adds."""

_DUPLICATE_WINDOW_SECONDS = 120.0
_MESSAGE_ID = "Nats-Msg-Id"
_SCHEDULE, _TARGET = "Nats-Schedule", "Nats-Schedule-Target"
_SUBJECT = re.compile(r"[!-~]+")
_BAD_HEADER = re.compile(r"[\r\n]")


class MemoryBroker:
    """What all clients of one in-memory broker share.

    Args:
        settings: of the installation.
        now: POSIX seconds.
        ahead_seconds: how far a test has moved the time.
    """

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], float],
        ahead_seconds: Callable[[], float] = float,
    ) -> None:
        self.subjects = Subjects(settings.prefix)
        self.now, self._ahead_seconds = now, ahead_seconds
        self.streams = [Stream(c) for c in streams.streams(settings, self.subjects)]
        self.queues: dict[str, Queue] = {}
        self.listeners: list[Listening] = []
        self._claim_seconds = settings.jobs.claim_seconds
        self._message_ids: dict[tuple[str, str], tuple[int, float]] = {}
        self._due: dict[str, tuple[float, str]] = {}
        self._alarm_at = NEVER
        self._alarm: asyncio.TimerHandle | None = None
        self._waiting: defaultdict[Stream | Queue, set[asyncio.Future[None]]] = defaultdict(set)

    # --- streams ---------------------------------------------------------------------------------
    @property
    def jobs(self) -> Stream:
        return self.stream(self.subjects.jobs_stream)

    def stream(self, name: str) -> Stream:
        for stream in self.streams:
            if stream.name == name:
                return stream
        raise BusRefused(f"stream not found: {name}")

    def stream_of(self, message: Outgoing) -> Stream:
        _check(message)
        for stream in self.streams:
            if stream.takes(message.subject):
                return stream
        raise BusRefused(f"{message.subject}: no stream takes this subject")

    def append(self, message: Outgoing) -> int:
        self.settle()
        stream = self.stream_of(message)
        if sequence := self._duplicate(stream, message):
            return sequence
        stream.check(message)
        return self.store(stream, message)

    def store(self, stream: Stream, message: Outgoing) -> int:
        due, target = _due_at(message), message.headers.get(_TARGET, "")
        if due is not None:
            stream.remove(message.subject)
        own = {k: v for k, v in message.headers.items() if not k.startswith("Nats-")}
        compared = message.expect if message.expect and message.expect.subject else None
        body = with_moved_time(message.body, self._ahead_seconds())
        stored = stream.add(message.subject, body, own, self.now(), compared)
        if due is not None:
            self._due[message.subject] = due, target
            self.alarm(due)
        if _MESSAGE_ID in message.headers:
            self._message_ids[stream.name, message.headers[_MESSAGE_ID]] = (
                stored.sequence,
                self.now(),
            )
        if queue := self.queues.get(message.subject):
            queue.offer(stored.sequence)
            self.ring(queue)
        self.pass_on(message.subject, body)
        self.ring(stream)
        return stored.sequence

    def _duplicate(self, stream: Stream, message: Outgoing) -> int:
        name = message.headers.get(_MESSAGE_ID, "")
        sequence, at = self._message_ids.get((stream.name, name), (0, 0.0))
        return sequence if name and self.now() - at < _DUPLICATE_WINDOW_SECONDS else 0

    def remove(self, stream: Stream, pattern: str, before: int = 0) -> None:
        _check_removable(stream)
        were = set(stream.messages)
        stream.remove(pattern, before)
        if stream is self.jobs:
            for queue in self.queues.values():
                queue.forget(were - set(stream.messages))
            for subject in [subject for subject in self._due if matches(pattern, subject)]:
                del self._due[subject]

    def remove_message(self, stream: Stream, sequence: int) -> None:
        _check_removable(stream)
        stored = stream.messages.get(sequence)
        stream.drop(sequence)
        if stored is not None and stream is self.jobs:
            self._due.pop(stored.subject, None)
            for queue in self.queues.values():
                queue.forget([sequence])

    # --- queues ----------------------------------------------------------------------------------
    def ensure_queue(self, name: str) -> Queue:
        subject = self.subjects.queue(name)
        if subject not in self.queues:
            consumer = self.subjects.consumer(name)
            self.queues[subject] = Queue(self.jobs, consumer, subject, self._claim_seconds)
        return self.queues[subject]

    def take(self, queue: Queue, batch: int) -> list[Delivery]:
        self.settle()
        taken = queue.take(batch, self.now())
        if taken:
            self.alarm(self.now() + self._claim_seconds)
        return taken

    def queue_of(self, ack_subject: str) -> tuple[Queue, int] | None:
        consumer, sequence = place_of(ack_subject)
        for queue in self.queues.values():
            if queue.name == consumer:
                return queue, sequence
        return None

    # --- time ------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Does what is due: schedules that fire, claims that lapse."""
        if self.now() < self._alarm_at:
            return
        self._alarm_at = NEVER
        for subject in [s for s, (due, _) in self._due.items() if due <= self.now()]:
            self.fire(subject)
        for due, _ in self._due.values():
            self.alarm(due)
        for queue in self.queues.values():
            if queue.lapse(self.now()):
                self.ring(queue)
            self.alarm(queue.next_lapse())

    def alarm(self, at: float) -> None:
        """Settles at that time, if not before."""
        if at < self._alarm_at:
            self._alarm_at = at
            if self._alarm:
                self._alarm.cancel()
            delay = max(0.001, at - self.now())
            self._alarm = asyncio.get_running_loop().call_later(delay, self._on_alarm)

    def _on_alarm(self) -> None:
        if self.now() >= self._alarm_at:
            self.settle()
        else:  # timers and clocks differ a little, an injected clock much
            at, self._alarm_at = self._alarm_at, NEVER
            self.alarm(at)

    def due_times(self) -> dict[str, float]:
        """When each schedule fires, POSIX seconds, by its subject."""
        return {subject: due for subject, (due, _) in self._due.items()}

    def fire(self, subject: str) -> None:
        """Puts a scheduled message where it belongs."""
        _, target = self._due.pop(subject)
        if stored := self.jobs.last(subject):
            self.jobs.drop(stored.sequence)
            self.store(self.jobs, Outgoing(target, stored.body, stored.headers))

    # --- waking ----------------------------------------------------------------------------------
    def pass_on(self, subject: str, body: bytes) -> None:
        for listener in tuple(self.listeners):
            listener.receive(subject, body)

    def ring(self, changed: Stream | Queue) -> None:
        """Wakes those that wait for a change of a stream or a queue."""
        for waiter in self._waiting.pop(changed, ()):
            if not waiter.done():
                waiter.set_result(None)

    def ring_all(self) -> None:
        for changed in tuple(self._waiting):
            self.ring(changed)

    async def change(self, of: Stream | Queue) -> None:
        """Waits until a stream or a queue changed, or a client closed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[of].add(waiter)
        try:
            await waiter
        finally:
            if waiters := self._waiting.get(of):
                waiters.discard(waiter)


class Listening:
    """One handler's subscription.

    Args:
        all_of_them: the broker's list, which it joins and leaves.
        at_most: signals it receives before it ends; 0 for all.
    """

    def __init__(
        self, all_of_them: list[Listening], subject: str, handler: Handler, at_most: int
    ) -> None:
        self._subject, self._handler, self._left = subject, handler, at_most or NEVER
        self._all = all_of_them
        self._running: set[asyncio.Future[None]] = set()
        self._all.append(self)

    def receive(self, subject: str, body: bytes) -> None:
        if matches(self._subject, subject) and self._left > 0:
            self._left -= 1
            asyncio.get_running_loop().call_soon(self._handle, subject, body)

    def _handle(self, subject: str, body: bytes) -> None:
        try:
            result = self._handler(subject, body)
        except Exception:
            log.exception("handler of %s failed", self._subject)
            return
        if result is not None:
            task = asyncio.ensure_future(result)
            self._running.add(task)
            task.add_done_callback(self._handled)

    def _handled(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("handler of %s failed: %r", self._subject, error, exc_info=error)

    async def unsubscribe(self) -> None:
        self._left = 0
        if self in self._all:
            self._all.remove(self)


def _due_at(message: Outgoing) -> float | None:
    """POSIX seconds of a schedule's ``@at``; None for a message that is none."""
    text = message.headers.get(_SCHEDULE)
    if text is None:
        return None
    try:
        if not text.startswith("@at ") or not message.headers[_TARGET]:
            raise ValueError(text)
        return datetime.fromisoformat(text.removeprefix("@at ")).timestamp()
    except (KeyError, ValueError):
        raise BusRefused(f"{message.subject}: message schedule is invalid: {text!r}") from None


def _check_removable(stream: Stream) -> None:
    """Raises BusRefused, as NATS does for a stream that denies it."""
    if stream.denies_removal:
        raise BusRefused(f"{stream.name}: messages of this stream cannot be removed")


def _check(message: Outgoing) -> None:
    """What does not fit on the wire is refused here, too."""
    subject, headers = message.subject, message.headers
    if not _SUBJECT.fullmatch(subject):
        raise ValueError(f"subject {subject[:80]!r} holds blanks or control characters")
    for key, value in headers.items():
        if _BAD_HEADER.search(key + value) or ":" in key:
            raise ValueError(f"header {key[:80]!r} holds a line break or a colon")
    size = len(message.body) + sum(len(k) + len(v) + 4 for k, v in headers.items())
    if size > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(f"{subject}: {size} bytes, the broker takes {MAX_PAYLOAD_BYTES}")
