"""Dispatching jobs and asking for them, over any bus."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, BusUnavailable, Expect, Outgoing, WrongSequence
from penstock.config import Settings
from penstock.events.envelope import Event, UnknownEvent, encode, new_id, utc_now
from penstock.events.job import JobCancelled, JobDispatched, JobEvent
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import lifecycle, payload, queue, registry, story
from penstock.jobs.dead import DeadLetters
from penstock.jobs.errors import AlreadyDispatched, JobRefused, NotFound, PayloadTooLarge
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.registry import Call
from penstock.jobs.revive import Ended, Reviver
from penstock.runtime.waiting import within
from penstock.telemetry import names

if TYPE_CHECKING:
    from penstock.jobs.batches import Batches
    from penstock.jobs.graphs import Graphs

_NOTHING = registry.encode_result(None)
"""The result of a job whose error was forgiven, too, whatever type its function gives."""
_CHUNK = 500
_LANES = 2
_TRANSITION_TRIES = 20
_FIRST_LOOK_SECONDS, _LOOK_SECONDS = 0.02, 2.0
"""A waiting client looks for itself too: at first soon after it heard of an event, since that is
heard before it is stored (an atomic batch some milliseconds), then seldom: a signal can be lost."""
_MAX_DELAY_SECONDS = 10 * 366 * 86_400.0


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is now, with its story."""

    record: JobRecord
    events: tuple[tuple[int, Event | UnknownEvent], ...]

    @property
    def state(self) -> State:
        return self.record.state

    @property
    def attempts(self) -> int:
        return self.record.attempt

    @property
    def error(self) -> Any:
        return self.record.error

    @property
    def result(self) -> Any:
        """The decoded result; None before completion."""
        raw = self.record.result
        if self.record.state is not State.COMPLETED or raw in (b"", _NOTHING):
            return None
        kind = registry.REGISTRY.get(self.record.function)
        return kind.decode_result(raw) if kind else msgspec.msgpack.decode(raw)


class Client:
    """Dispatches and queries jobs.

    Args:
        bus: a connected bus; :meth:`connect` makes one.
        max_payload_bytes: larger encoded calls are refused.
        source: what its events say about where they come from.
    """

    def __init__(
        self,
        bus: Bus,
        *,
        prefix: str = "penstock",
        max_payload_bytes: int = 512_000,
        source: str = "client",
    ) -> None:
        self._bus = bus
        self._subjects = Subjects(prefix)
        self._max_payload_bytes = max_payload_bytes
        self._source = source
        self._reviver = Reviver(bus, self._subjects, self._source, max_payload_bytes)
        self.dead = DeadLetters(bus, self._subjects, self._source, max_payload_bytes)

    @staticmethod
    @asynccontextmanager
    async def connect(settings: Settings) -> AsyncIterator[Client]:
        """A client over NATS, closed at the end.

        Example::

            async with Client.connect(load()) as client:
                await client.dispatch(rebuild(table="orders"))
        """
        from penstock.bus.nats import connect  # noqa: PLC0415 - the bus is the caller's choice

        bus = await connect(settings, "penstock-client")
        try:
            yield Client(
                bus, prefix=settings.prefix, max_payload_bytes=settings.jobs.max_payload_bytes
            )
        finally:
            await bus.close()

    @property
    def source(self) -> str:
        """What its events say about where they come from."""
        return self._source

    @property
    def batches(self) -> Batches:
        """Jobs that are counted together."""
        from penstock.jobs.batches import Batches  # noqa: PLC0415 - it needs this module

        return Batches(self, self._bus, self._subjects)

    @property
    def graphs(self) -> Graphs:
        """Chains, and jobs that wait for each other."""
        from penstock.jobs.graphs import Graphs  # noqa: PLC0415 - it needs this module

        return Graphs(self, self._bus, self._subjects)

    # --- dispatching ------------------------------------------------------------------------------
    async def dispatch(
        self,
        call: Call,
        *,
        queue: str = "",
        delay: float | timedelta = 0.0,
        at: datetime | None = None,
        tags: Iterable[str] = (),
        job_id: str = "",
    ) -> str:
        """Hands a job over; returns its id once the broker keeps it.

        Args:
            queue: instead of the function's own. delay: seconds from now. at: not before this time.
            tags: besides the function's. job_id: a caller's own id makes the dispatch idempotent.

        Raises:
            PayloadTooLarge, BadName: refused before anything is sent.
            AlreadyDispatched: a job of this id exists.
            BusUnavailable: the broker did not answer; the job may or may not have been taken.
        """
        if job_id:
            check_name("job", job_id)
        due = _due(delay, at)
        event = self._dispatched(call, queue, due, registry.check_tags(tags), job_id or new_id())
        with self._span(event, 1):
            trace = telemetry.inject()
            try:
                sequence = await self._bus.append(self._first(event, trace))
            except WrongSequence:
                raise AlreadyDispatched(
                    f"a job of id {event.job_id!r} was dispatched before"
                ) from None
            await self._bus.append(self._queued(event, sequence, trace))
        return event.job_id

    async def dispatch_many(self, calls: Sequence[Call], *, queue: str = "") -> list[str]:
        """Hands many jobs over, pipelined; returns their ids in order.

        Raises:
            BusError: at the first job that was not taken; those before it were.
        """
        ids: list[str] = [""] * len(calls)
        chunks = iter(range(0, len(calls), _CHUNK))

        async def lane() -> None:
            for start in chunks:
                events = [
                    self._dispatched(call, queue, None, (), new_id())
                    for call in calls[start : start + _CHUNK]
                ]
                await self._dispatch_chunk(events)
                ids[start : start + _CHUNK] = [event.job_id for event in events]

        await asyncio.gather(*(lane() for _ in range(_LANES)))
        return ids

    async def _dispatch_chunk(self, events: list[JobDispatched]) -> None:
        for answer in await self.hand_over(events):
            if isinstance(answer, BusError):
                raise answer

    async def hand_over(self, events: Sequence[JobDispatched]) -> list[int | BusError]:
        """Dispatches prepared jobs, pipelined; one answer each, in order.

        Returns:
            The sequence of each job's event, else why the job, or its queue message, was not taken;
            :class:`WrongSequence` where a job of that id exists.
        """
        if not events:
            return []
        with self._span(events[0], len(events)):
            trace = telemetry.inject()
            answers = await self._bus.append_many([self._first(e, trace) for e in events])
            taken = [
                (at, event, answer)
                for at, (event, answer) in enumerate(zip(events, answers, strict=True))
                if not isinstance(answer, BusError)
            ]
            queued = await self._bus.append_many(
                [self._queued(event, sequence, trace) for _, event, sequence in taken]
            )
        for (at, _, _), answer in zip(taken, queued, strict=True):
            if isinstance(answer, BusError):
                answers[at] = answer
        return answers

    def prepare(self, call: Call, job_id: str, queue: str = "") -> JobDispatched:
        """The event that :meth:`hand_over` dispatches. Raises as :meth:`dispatch` does."""
        return self._dispatched(call, queue, None, (), check_name("job", job_id))

    def _dispatched(
        self,
        call: Call,
        queue_name: str,
        due: datetime | None,
        tags: tuple[str, ...],
        job_id: str,
    ) -> JobDispatched:
        kind = call.job
        name = check_name("queue", queue_name) if queue_name else kind.queue
        all_tags = registry.check_tags((*kind.tags, *tags)) if tags else kind.tags
        body = payload.encode(
            payload.Payload(
                id=job_id,
                function=kind.name,
                queue=name,
                arguments=msgspec.Raw(call.arguments),
                dispatched_at=time.time(),
                tries=kind.tries,
                timeout_seconds=kind.timeout_seconds,
                backoff=kind.retries.backoff,
                tags=all_tags,
            )
        )
        if len(body) > self._max_payload_bytes:
            raise PayloadTooLarge(
                f"{kind.name}: the encoded call has {len(body)} bytes, "
                f"jobs.max_payload_bytes allows {self._max_payload_bytes}; "
                "write large data to a file and pass its name"
            )
        return JobDispatched(
            job_id=job_id,
            correlation_id=job_id,
            source=self._source,
            queue=name,
            function=kind.name,
            payload=body,
            tags=all_tags,
            tries=kind.tries,
            due_at=due,
        )

    def _span(self, event: JobDispatched, count: int) -> AbstractContextManager[Any]:
        if not telemetry.enabled():
            return nullcontext()
        about: dict[str, Any] = {
            names.MESSAGING_SYSTEM: names.NATS,
            names.MESSAGING_OPERATION_NAME: "dispatch",
            names.MESSAGING_OPERATION_TYPE: names.SEND,
            names.MESSAGING_DESTINATION: event.queue,
            names.FUNCTION: event.function,
        }
        if count == 1:
            about |= {
                names.MESSAGING_MESSAGE_ID: event.job_id,
                names.MESSAGING_BODY_SIZE: len(event.payload),
            }
        else:
            about[names.MESSAGING_BATCH_COUNT] = count
        return telemetry.span(
            names.dispatch(event.queue), kind=telemetry.SpanKind.PRODUCER, attributes=about
        )

    def _first(self, event: JobDispatched, trace: Mapping[str, str]) -> Outgoing:
        return Outgoing(
            self._subjects.event(event),
            encode(event),
            trace,
            Expect(0, self._subjects.job(event.job_id)),
        )

    def _queued(self, event: JobDispatched, sequence: int, trace: Mapping[str, str]) -> Outgoing:
        if event.due_at is None:
            return Outgoing(
                self._subjects.queue(event.queue),
                event.payload,
                queue.headers(event.job_id, sequence, 1, trace),
            )
        return queue.scheduled(self._subjects, lifecycle.evolve(None, event, sequence), trace)

    # --- asking -----------------------------------------------------------------------------------
    async def job(self, job_id: str) -> JobView:
        """A job's state, attempts, result and error. Raises NotFound."""
        check_name("job", job_id)
        events = await story.read(self._bus, self._subjects, job_id)
        record = lifecycle.fold(events)
        if record is None:
            raise NotFound(f"no job of id {job_id!r}; its events may have aged out")
        return JobView(record=record, events=events)

    async def wait(self, job_id: str, timeout_seconds: float | None = None) -> JobView:
        """Waits until a job has ended, through broker restarts. Raises TimeoutError, NotFound."""
        check_name("job", job_id)
        woken = asyncio.Event()
        listening = await self._bus.listen(self._subjects.job(job_id), lambda *_: woken.set())
        pause = _LOOK_SECONDS
        try:
            async with asyncio.timeout(timeout_seconds):
                while True:
                    woken.clear()
                    with suppress(BusUnavailable):
                        view = await self.job(job_id)
                        if view.state.ended:
                            return view
                    heard = await within(pause, woken.wait())
                    pause = _FIRST_LOOK_SECONDS if heard else min(2 * pause, _LOOK_SECONDS)
        finally:
            await listening.unsubscribe()

    # --- changing ---------------------------------------------------------------------------------
    async def cancel(self, job_id: str, reason: str = "cancelled by a client") -> JobView:
        """Cancels a job that has not ended; a running one is told at once.

        Returns:
            The job as it is then: a job that ended first keeps its end.
        """
        for _ in range(_TRANSITION_TRIES):
            view = await self.job(job_id)
            if view.state.ended:
                return view
            event = JobCancelled(
                job_id=job_id, correlation_id=job_id, source=self._source, reason=reason
            )
            if await self._transition(event, view.record.sequence):
                await self._bus.signal(self._subjects.cancel_notice(job_id))
                await self._bus.remove(
                    self._subjects.jobs_stream, self._subjects.schedule(view.record.queue, job_id)
                )
                return await self.job(job_id)
        raise JobRefused(f"job {job_id} changes too quickly to be cancelled; try again")

    async def retry(self, job_id: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Lets a dead or cancelled job go again: a new life of the same job.

        Args:
            arguments: some that are replaced.

        Raises:
            JobRefused: the job is neither dead nor cancelled; BadArguments: they do not fit it.
            NotFound: neither its events nor a dead letter are left.
        """
        try:
            record = (await self.job(job_id)).record
        except NotFound:  # dead letters are kept longer than events
            await self.dead.retry(job_id, arguments)
            return
        if record.state not in (State.DEAD, State.CANCELLED):
            raise JobRefused(
                f"job {job_id} is {record.state}; only dead or cancelled jobs are retried"
            )
        subject = self._subjects.dead(record.queue, job_id)
        letter = await self._bus.last(self._subjects.dead_stream, subject)
        ended = Ended(
            job_id=job_id,
            payload=record.payload,
            sequence=record.sequence,
            letter=letter.sequence if letter else 0,
        )
        [refusal] = await self._reviver.jobs([ended], arguments)
        if refusal:
            raise refusal

    async def _transition(self, event: JobEvent, sequence: int) -> bool:
        message = Outgoing(
            self._subjects.event(event),
            encode(event),
            telemetry.inject(),
            Expect(sequence, self._subjects.job(event.job_id)),
        )
        try:
            await self._bus.append(message)
        except WrongSequence:
            return False
        return True


def _due(delay: float | timedelta, at: datetime | None) -> datetime | None:
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
    if at is not None:
        if seconds:
            raise ValueError("give delay or at, not both")
        if at.tzinfo is None:
            raise ValueError("at needs a time zone, e.g. datetime(..., tzinfo=UTC)")
        return at.astimezone(UTC)
    if not 0 <= seconds <= _MAX_DELAY_SECONDS:
        raise ValueError(
            f"a delay is 0 s to {_MAX_DELAY_SECONDS:g} s (10 years), found {seconds:g} s"
        )
    return utc_now() + timedelta(seconds=seconds) if seconds else None
