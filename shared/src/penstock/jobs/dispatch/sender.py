"""Handing prepared jobs to the broker: the event first, then the message in the queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, StreamFull, WrongSequence
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.events.subjects import Subjects
from penstock.jobs import event_log, lifecycle
from penstock.jobs.dispatch.headroom import Room
from penstock.jobs.errors import AlreadyDispatched
from penstock.jobs.queues import queue_messages
from penstock.telemetry import names

_AROUND_BYTES = 700


class Sender:
    """Sends what a :class:`penstock.jobs.dispatch.job_factory.Maker` made."""

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self._room = Room(bus, subjects)

    async def check_room(self) -> None:
        """Raises StreamFull. Asked before what precedes a dispatch, which then goes on at once."""
        await self._room.check(_AROUND_BYTES)

    async def send(self, event: JobDispatched) -> None:
        """One job. Raises AlreadyDispatched, StreamFull, BusError."""
        sizes = [_size(event)]
        await self._room.take(sizes)
        try:
            await self._send(event)
        finally:
            self._room.done(sizes)

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

    async def send_again(self, event: JobDispatched) -> None:
        """One job that may have been sent before, whole or in part: it is there once after this.

        Raises:
            AlreadyDispatched: another job has its id.
            BusError: it is not known to be there.
        """
        try:
            await self.send(event)
        except AlreadyDispatched:
            record = lifecycle.fold(await event_log.read(self._bus, self._subjects, event.job_id))
            if record is None or record.dispatch_id not in ("", event.id):
                raise  # without a first event, as of one whose end alone is left: ours, long over
            if record.life == 1 and not record.attempt and not record.state.ended:
                message = self._queued(event, record.life_from, telemetry.inject())
                await self._bus.append(message)

    async def send_many(
        self, events: Sequence[JobDispatched], *, into_reserve: bool = False
    ) -> list[int | BusError]:
        """Many, pipelined; one answer each, in order.

        Args:
            into_reserve: also where the event log takes no new jobs: what lives goes on with them.

        Returns:
            The sequence of each job's event, else why the job, or its queue message, was not taken;
            :class:`WrongSequence` where a job of that id exists.
        """
        if into_reserve:
            return await self._send_part(events)
        answers: list[int | BusError] = []
        while left := events[len(answers) :]:
            sizes = [_size(event) for event in left]
            try:
                count = await self._room.take(sizes)
            except StreamFull as error:
                return [*answers, *([error] * len(left))]
            try:
                answers += await self._send_part(left[:count])
            finally:
                self._room.done(sizes[:count])
        return answers

    async def _send_part(self, events: Sequence[JobDispatched]) -> list[int | BusError]:
        if not events:
            return []
        with _span(events[0], len(events)):
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
                queue_messages.headers(event.job_id, sequence, 1, trace),
            )
        return queue_messages.scheduled(
            self._subjects, lifecycle.evolve(None, event, sequence), trace
        )


def _size(event: JobDispatched) -> int:
    """About what the event takes in the log, where the call stands in base64."""
    return _AROUND_BYTES + len(event.payload) * 4 // 3


def _span(event: JobDispatched, count: int) -> AbstractContextManager[Any]:
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
