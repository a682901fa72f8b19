"""Queue messages that cannot be run here: dead letters, and what waits for a key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta

import msgspec

from penstock.bus.protocol import Bus, BusError, Delivery, Outgoing, PayloadTooLarge, broker_time
from penstock.jobs import queue as queues
from penstock.jobs.lifecycle import State
from penstock.worker.joblog import JobLog, Unreadable
from penstock.worker.reading import Locked, Rejected

log = logging.getLogger("penstock.worker")

_LATER_SECONDS = 0.2
_LOCKED_SECONDS = 15.0
"""A job without its key is tried again after this."""
_KEPT_BYTES = 400_000
"""Of an unreadable message that is too large for its dead letter, where it stands in base64."""


class Refusals:
    """What becomes of a delivery that is not run: nothing of it is lost."""

    def __init__(self, bus: Bus, joblog: JobLog) -> None:
        self._bus, self._joblog = bus, joblog

    async def reject(self, delivery: Delivery, reason: Rejected) -> None:
        """It cannot run: it becomes a dead letter with the reason."""
        try:
            await self._reject_job(delivery, reason)
        except BusError as error:
            log.warning("message %d of its queue is left for later: %s", delivery.sequence, error)
            await self.give_back_later([delivery])
            return
        await self._bus.ack([delivery])

    async def _reject_job(self, delivery: Delivery, reason: Rejected) -> None:
        try:
            record = (await self._joblog.look_up(reason.job_id))[0] if reason.job_id else None
        except Unreadable:
            record = None
        if record is None:
            await self._dead_letter(delivery, reason)
        elif reason.made_from < record.life_from:
            log.info("job %s: a message of an earlier life is dropped", record.id)
        elif record.state is State.DEAD:  # its dead letter may not have been written
            await self._joblog.follow_up(record, delivery.headers)
        elif record.state is State.RUNNING and record.message != delivery.sequence:
            log.info("job %s runs from another message; this one is dropped", record.id)
        elif not record.state.ended:
            await self._joblog.bury(record, reason.error, delivery.headers)

    async def _dead_letter(self, delivery: Delivery, reason: Rejected) -> None:
        queue = delivery.subject.rpartition(".")[2]
        name = f"message-{delivery.sequence}"
        letter = queues.DeadLetter(
            job_id=name,
            queue=queue,
            function="",
            payload=delivery.body,
            error=reason.error,
            attempts=0,
            at=self._bus.now(),
        )
        log.warning("queue %s, message %d: %s", queue, delivery.sequence, reason)
        subject = self._joblog.subjects.dead(queue, name)
        try:
            await self._bus.append(Outgoing(subject, msgspec.json.encode(letter)))
        except PayloadTooLarge:
            kept = f" (of its {len(delivery.body)} bytes the first {_KEPT_BYTES} are kept)"
            error = msgspec.structs.replace(letter.error, message=letter.error.message + kept)
            cut = msgspec.structs.replace(letter, payload=letter.payload[:_KEPT_BYTES], error=error)
            await self._bus.append(Outgoing(subject, msgspec.json.encode(cut)))

    async def postpone(self, delivery: Delivery, reason: Locked) -> None:
        """Back into the queue in a while, whoever takes it then; no attempt is used up."""
        log.error("message %d waits: %s", delivery.sequence, reason)
        later = broker_time(self._bus) + timedelta(seconds=_LOCKED_SECONDS)
        job_id = delivery.headers.get(queues.JOB, "")
        try:
            await self._bus.append(queues.again(self._joblog.subjects, delivery, job_id, later))
        except BusError as error:
            log.warning("message %d is left for later: %s", delivery.sequence, error)
            await self.give_back_later([delivery])
            return
        await self._bus.ack([delivery])

    async def give_back_later(self, deliveries: Sequence[Delivery]) -> None:
        """Not at once: what the broker refused now would go round and round."""
        if deliveries:
            await asyncio.sleep(_LATER_SECONDS)
            await self._bus.give_back([delivery.ack_subject for delivery in deliveries])
