"""Queue messages that cannot be run here: dead letters, and what waits for a key or other code."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusError, Delivery, Outgoing, PayloadTooLarge
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.job_log import JobLog, trace_of
from penstock.jobs.lifecycle import State
from penstock.jobs.queues import queue_messages
from penstock.runtime.limited_log import LimitedLog
from penstock.runtime.poison_messages import note
from penstock.worker.claiming.reading import Locked, Refused, Rejected, Unknown
from penstock.worker.claiming.unknown_jobs import NO_EVENT, UnknownJobs

log = logging.getLogger("penstock.worker")

_LATER_SECONDS = 0.2
_LOCKED_SECONDS, _MAX_LOCKED_SECONDS = 15.0, 300.0
"""A job without its key is tried again after a share of the time that it has waited already, at
least and at most so long: thousands of them cost their pool a few messages a second."""
AT_ONCE = 256
"""Requests to the broker about messages that are refused together."""
_KEPT_BYTES = 400_000
"""Of an unreadable message that is too large for its dead letter, where it stands in base64."""


class Refusals:
    """What becomes of a delivery that is not run: nothing of it is lost.

    Args:
        bus: a connection.
        joblog: of this worker.
        unknown_jobs: hands on what this worker's code does not know.
        missing_key_seconds: a job without its key is dead after this.
    """

    def __init__(
        self, bus: Bus, joblog: JobLog, unknown_jobs: UnknownJobs, missing_key_seconds: float
    ) -> None:
        self._bus, self._joblog, self._unknown_jobs = bus, joblog, unknown_jobs
        self._missing_key_seconds = missing_key_seconds
        self._log = LimitedLog(log)

    async def refuse(self, refused: Sequence[tuple[Delivery, Refused]]) -> None:
        """Deals with messages that cannot be run, many at a time."""
        rejected = [(one, why) for one, why in refused if isinstance(why, Rejected)]
        locked = [(one, why) for one, why in refused if isinstance(why, Locked)]
        unknown = [(one, why) for one, why in refused if isinstance(why, Unknown)]
        if unknown:
            handed_on = await self._unknown_jobs.hand_on(unknown)
            rejected += handed_on.rejected
            await self.give_back_later(handed_on.failed)
        if locked:
            rejected += await self._postpone(await self._dispatched(locked))
        await bounded.gather(lambda one: self.reject(*one), rejected, AT_ONCE)

    async def _dispatched(
        self, locked: Sequence[tuple[Delivery, Locked]]
    ) -> list[tuple[Delivery, Locked]]:
        """Those whose job exists; a message of no job becomes a dead letter."""
        exists = await bounded.gather(self._exists, locked, AT_ONCE)
        forged = [one for one, there in zip(locked, exists, strict=True) if not there]
        await bounded.gather(self._reject_forged, forged, AT_ONCE)
        return [one for one, there in zip(locked, exists, strict=True) if there]

    async def _reject_forged(self, message: tuple[Delivery, Locked]) -> None:
        delivery, reason = message
        try:
            if not await self.is_over(delivery, reason.job_id, reason.made_from):
                await self._dead_letter(delivery, _rejected("malformed", NO_EVENT, reason))
        except BusError as error:
            log.warning("message %d of its queue is given back: %s", delivery.sequence, error)
            await self.give_back_later([delivery])
            return
        await self._bus.ack([delivery])

    async def is_over(self, delivery: Delivery, job_id: str, made_from: int) -> bool:
        """Whether the message is one of a job that ended, whose history was shortened.

        Raises:
            BusError
        """
        is_over = bool(job_id) and await self._joblog.is_over(job_id, made_from)
        if is_over:
            log.info(
                "message %d of its queue is dropped: job %s has ended, and its events left the log",
                delivery.sequence,
                job_id,
            )
        return is_over

    async def reject(self, delivery: Delivery, reason: Rejected) -> None:
        """It cannot run: it becomes a dead letter with the reason."""
        try:
            await self._reject_job(delivery, reason)
        except BusError as error:
            log.warning("message %d of its queue is given back: %s", delivery.sequence, error)
            await self.give_back_later([delivery])
            return
        await self._bus.ack([delivery])

    async def put_aside(self, delivery: Delivery, error: Exception) -> None:
        """What no worker can handle becomes a dead letter, whatever the job's events say.

        It would end each worker that takes it. Of a job that lives, the orchestrator makes the
        message again, ever less often.
        """
        note(f"message {delivery.sequence} on {delivery.subject}", error)
        reason = Rejected("malformed", f"it cannot be handled: {error!r}")
        try:
            await self._dead_letter(delivery, reason)
        except BusError as refusal:
            log.warning("message %d of its queue is given back: %s", delivery.sequence, refusal)
            await self.give_back_later([delivery])
            return
        await self._bus.ack([delivery])

    async def _reject_job(self, delivery: Delivery, reason: Rejected) -> None:
        try:
            record = await self._joblog.read_checked(reason.job_id) if reason.job_id else None
        except UnreadableJob:
            record = None
        if record is None:
            if not await self.is_over(delivery, reason.job_id, reason.made_from):
                await self._dead_letter(delivery, reason)
        elif reason.made_from < record.messages_from:
            log.info("job %s: a message of an earlier life or queue is dropped", record.id)
        elif record.state is State.DEAD:  # its dead letter may not have been written
            await self._joblog.follow_up(record, trace_of(delivery.headers))
        elif record.state is State.RUNNING and record.message != delivery.sequence:
            log.info("job %s runs from another message; this one is dropped", record.id)
        elif not record.state.ended:
            await self._joblog.bury(record, reason.error, trace_of(delivery.headers))

    async def _dead_letter(self, delivery: Delivery, reason: Rejected) -> None:
        queue = delivery.subject.rpartition(".")[2]
        name = f"message-{delivery.sequence}"
        letter = queue_messages.DeadLetter(
            job_id=name,
            queue=queue,
            function="",
            payload=delivery.body,
            error=reason.error,
            attempts=0,
            at=self._bus.now(),
        )
        self._log.write(
            logging.WARNING, f"{queue} {reason.error.kind}",
            "queue %s, message %d: %s", queue, delivery.sequence, reason,
        )  # fmt: skip
        subject = self._joblog.subjects.dead(queue, name)
        try:
            await self._bus.append(Outgoing(subject, msgspec.json.encode(letter)))
        except PayloadTooLarge:
            kept = f" (of its {len(delivery.body)} bytes the first {_KEPT_BYTES} are kept)"
            error = msgspec.structs.replace(letter.error, message=letter.error.message + kept)
            cut = msgspec.structs.replace(letter, payload=letter.payload[:_KEPT_BYTES], error=error)
            await self._bus.append(Outgoing(subject, msgspec.json.encode(cut)))

    async def _postpone(
        self, locked: Sequence[tuple[Delivery, Locked]]
    ) -> list[tuple[Delivery, Rejected]]:
        """Back into their queue in a while, for any worker; no attempt is used up.

        Returns:
            Those that have waited too long and will not go again.
        """
        now = self._bus.now()
        over: list[tuple[Delivery, Rejected]] = []
        waiting: list[tuple[Delivery, Locked]] = []
        messages: list[Outgoing] = []
        for delivery, reason in locked:
            since = queue_messages.since(delivery, queue_messages.LOCKED_SINCE)
            waited = delivery.stored_at - since
            if waited >= self._missing_key_seconds:
                why = f"{reason}; waited {waited:.0f} s for it (encryption.missing_key_seconds)"
                over.append((delivery, _rejected("missing-key", why, reason)))
            else:
                self._log.write(
                    logging.ERROR, reason.key, "job %s waits: %s", reason.job_id, reason
                )
                waiting.append((delivery, reason))
                messages.append(self._later(delivery, reason.job_id, now, waited))
        answers = await self._bus.append_many(messages)
        failed: list[Delivery] = []
        for (delivery, reason), answer in zip(waiting, answers, strict=True):
            if isinstance(answer, PayloadTooLarge):
                why = f"{reason}; it is too large to wait for it: {answer}"
                over.append((delivery, _rejected("missing-key", why, reason)))
            elif isinstance(answer, BusError):
                failed.append(delivery)
        stored = zip(waiting, answers, strict=True)
        await self._bus.ack([one for (one, _), answer in stored if isinstance(answer, int)])
        if failed:
            log.warning("%d messages without a key are given back", len(failed))
            await self.give_back_later(failed)
        return over

    async def _exists(self, message: tuple[Delivery, Locked]) -> bool:
        """Whether the job was ever dispatched; asked once, before it waits for the first time."""
        delivery, reason = message
        if queue_messages.LOCKED_SINCE in delivery.headers:
            return True
        try:
            return await self._joblog.exists(reason.job_id)
        except BusError:
            return True

    def _later(self, delivery: Delivery, job_id: str, now: float, waited: float) -> Outgoing:
        pause = pause_seconds(waited, random.random())  # noqa: S311
        due = datetime.fromtimestamp(now + pause, UTC)
        since = {queue_messages.LOCKED_SINCE: f"{delivery.stored_at - waited:.3f}"}
        return queue_messages.postponed(self._joblog.subjects, delivery, job_id, due, since)

    async def give_back_later(self, deliveries: Sequence[Delivery]) -> None:
        """Naks with a delay, else redelivery spins: the broker refuses now."""
        if deliveries:
            await asyncio.sleep(_LATER_SECONDS)
            await self._bus.give_back([delivery.ack_subject for delivery in deliveries])


def pause_seconds(waited_seconds: float, chance: float) -> float:
    """How long a job without its key is not offered again.

    Args:
        waited_seconds: how long it has waited for its key.
        chance: in [0, 1), so that jobs that were refused together do not come back together.
    """
    longest = min(max(waited_seconds, _LOCKED_SECONDS), _MAX_LOCKED_SECONDS)
    return longest * (1 + chance) / 2


def _rejected(kind: str, why: str, reason: Locked) -> Rejected:
    return Rejected(kind, why, reason.job_id, reason.made_from)
