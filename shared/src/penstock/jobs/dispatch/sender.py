"""Sending prepared jobs to the broker: the event first, then the message in the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, StreamFull, WrongSequence
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.dispatch.headroom import Headroom
from penstock.jobs.errors import AlreadyDispatched
from penstock.jobs.job_log import JobLog
from penstock.jobs.queues import queue_messages
from penstock.telemetry import names

_ENVELOPE_BYTES = 700


class Sender:
    """Sends what a :class:`penstock.jobs.dispatch.job_factory.JobFactory` made.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._log = JobLog(bus, subjects)
        self._headroom = Headroom(bus, subjects)

    async def check_headroom(self) -> None:
        """Raises StreamFull, before anything that precedes a dispatch is stored."""
        await self._headroom.check(_ENVELOPE_BYTES)

    async def send(self, event: JobDispatched) -> None:
        """Sends one job. Raises AlreadyDispatched, StreamFull, BusError."""
        sizes = [_size(event)]
        await self._headroom.reserve(sizes)
        try:
            await self._send(event)
        finally:
            self._headroom.release(sizes)

    async def _send(self, event: JobDispatched) -> None:
        with _span(event, 1):
            trace = telemetry.inject()
            try:
                sequence = await self._bus.append(self._first(event, trace))
            except WrongSequence:
                raise AlreadyDispatched(
                    f"a job of id {event.job_id!r} was dispatched before", event.job_id
                ) from None
            await self._bus.append(self._queued(event, sequence, trace))

    async def ensure_sent(self, event: JobDispatched) -> None:
        """Sends a job that may have been sent before, whole or in part; it exists once after this.

        Raises:
            AlreadyDispatched: another job has its id.
            BusError: whether the job was stored is not known.
        """
        try:
            await self.send(event)
        except AlreadyDispatched:
            record = await self._log.read(event.job_id)
            if record is None or record.dispatch_id not in ("", event.id):
                raise  # a record without its first event, ended long ago, is taken for this job
            is_untouched = record.life == 1 and not record.attempt and not record.moved
            if is_untouched and not record.state.ended:
                message = self._queued(event, record.life_from, telemetry.inject())
                await self._bus.append(message)

    async def send_many(
        self,
        events: Sequence[JobDispatched],
        *,
        into_reserve: bool = False,
        after: Sequence[Mapping[str, str]] = (),
    ) -> list[int | BusError]:
        """Sends many jobs, pipelined; one answer each, in order.

        Args:
            events: the jobs.
            into_reserve: also where the event log accepts no new jobs: for those that living
                batches and graphs go on with.
            after: trace headers of what led to this, which its span links to.

        Returns:
            The sequence of each job's event, else why the job, or its queue message, was not
            stored; :class:`WrongSequence` where a job of that id exists.
        """
        if into_reserve:
            return await self._send_part(events, after)
        answers: list[int | BusError] = []
        while unsent := events[len(answers) :]:
            sizes = [_size(event) for event in unsent]
            try:
                count = await self._headroom.reserve(sizes)
            except StreamFull as error:
                return [*answers, *([error] * len(unsent))]
            try:
                answers += await self._send_part(unsent[:count], after)
            finally:
                self._headroom.release(sizes[:count])
        return answers

    async def _send_part(
        self, events: Sequence[JobDispatched], after: Sequence[Mapping[str, str]]
    ) -> list[int | BusError]:
        if not events:
            return []
        with _span(events[0], len(events), after):
            trace = telemetry.inject()
            answers = await self._bus.append_many([self._first(e, trace) for e in events])
            stored = [
                (index, event, answer)
                for index, (event, answer) in enumerate(zip(events, answers, strict=True))
                if not isinstance(answer, BusError)
            ]
            queued = await self._bus.append_many(
                [self._queued(event, sequence, trace) for _, event, sequence in stored]
            )
        for (index, _, _), answer in zip(stored, queued, strict=True):
            if isinstance(answer, BusError):
                answers[index] = answer
        return answers

    def _first(self, event: JobDispatched, trace: Mapping[str, str]) -> Outgoing:
        return Outgoing(
            self._subjects.event(event),
            encode(event),
            trace,
            Expect(0, self._subjects.job(event.job_id)),
        )

    def _queued(self, event: JobDispatched, sequence: int, trace: Mapping[str, str]) -> Outgoing:
        if event.due_at is None:
            headers = queue_messages.headers(event.job_id, sequence, 1, trace)
            if event.kind:
                headers = {
                    **headers,
                    **queue_messages.recorded_header(0, 0),
                    **queue_messages.version_header(event.version),
                }
            return Outgoing(self._subjects.queue(event.queue), event.payload, headers)
        record = lifecycle.evolve(None, event, sequence)
        return queue_messages.scheduled(self._subjects, record, trace)


def _size(event: JobDispatched) -> int:
    """Roughly the bytes of the event in the log, which holds the call in base64."""
    return _ENVELOPE_BYTES + len(event.payload) * 4 // 3


def _span(
    event: JobDispatched, count: int, after: Sequence[Mapping[str, str]] = ()
) -> AbstractContextManager[Any]:
    if not telemetry.enabled():
        return nullcontext()
    attributes: dict[str, Any] = {
        names.MESSAGING_SYSTEM: names.NATS,
        names.MESSAGING_OPERATION_NAME: "dispatch",
        names.MESSAGING_OPERATION_TYPE: names.SEND,
        names.MESSAGING_DESTINATION: event.queue,
        names.FUNCTION: event.function,
    }
    if count == 1:
        attributes |= {
            names.MESSAGING_MESSAGE_ID: event.job_id,
            names.MESSAGING_BODY_SIZE: len(event.payload),
        }
    else:
        attributes[names.MESSAGING_BATCH_COUNT] = count
    return telemetry.span(
        names.dispatch(event.queue),
        kind=telemetry.SpanKind.PRODUCER,
        attributes=attributes,
        links=telemetry.links(*after),
    )
