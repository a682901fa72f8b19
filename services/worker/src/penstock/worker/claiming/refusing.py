"""Queue messages that cannot be run here: dead letters, and what waits for a key or other code."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import (
    Bus,
    BusError,
    Delivery,
    Expect,
    Outgoing,
    PayloadTooLarge,
    WrongSequence,
    broker_time,
)
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.job_log import JobLog, trace_of
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages
from penstock.jobs.reading import handed_on
from penstock.jobs.workflows.coded.blocking import blocked
from penstock.runtime.limited_log import LimitedLog
from penstock.runtime.poison_messages import note
from penstock.worker.claiming.postponing import Postponer
from penstock.worker.claiming.reading import Locked, Refused, Rejected, Unknown
from penstock.worker.claiming.unknown_jobs import UnknownJobs
from penstock.worker.core.settle import Action, settle

log = logging.getLogger("penstock.worker")

_LATER_SECONDS = 0.2
_LOCKED_SECONDS, _MAX_LOCKED_SECONDS = 15.0, 300.0
"""A job without its key is tried again after a share of the time that it has waited already, at
least and at most so long: thousands of them cost their pool a few messages a second."""
AT_ONCE = 256
"""Requests to the broker about messages that are refused together."""
_ANY_LOSSES = 2**31
"""Whether a workflow lost too many workers is for those to say that know its code."""
_KEPT_BYTES = 400_000
"""Of an unreadable message that is too large for its dead letter, where it stands in base64."""


class Refusals:
    """What becomes of a delivery that is not run: nothing of it is lost.

    Args:
        bus: a connection.
        joblog: of this worker.
        unknown_jobs: hands on what this worker's code does not know.
        postponer: stores again what waits for a key.
        missing_key_seconds: a job without its key is dead after this.
    """

    def __init__(
        self,
        bus: Bus,
        joblog: JobLog,
        unknown_jobs: UnknownJobs,
        postponer: Postponer,
        missing_key_seconds: float,
    ) -> None:
        self._bus, self._joblog = bus, joblog
        self._unknown_jobs, self._postponer = unknown_jobs, postponer
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
            rejected += await self._postpone(locked)
        await bounded.gather(lambda one: self.reject(*one), rejected, AT_ONCE)

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

    async def replace_foreign(self, delivery: Delivery, record: JobRecord) -> None:
        """A message with another call than the job's is dropped; the job has a true one behind it.

        Raises:
            BusError
        """
        self._log.write(
            logging.WARNING, record.queue,
            "job %s: a message with another call than the job's is dropped", record.id,
        )  # fmt: skip
        if not record.state.ended:
            await self._joblog.follow_up(record, {})
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
        elif not record.state.ended and record.payload != delivery.body:
            await self.replace_foreign(delivery, record)
        elif record.state is State.DEAD:  # its dead letter may not have been written
            await self._joblog.follow_up(record, trace_of(delivery.headers))
        elif record.state is State.RUNNING and record.message != delivery.sequence:
            log.info("job %s runs from another message; this one is dropped", record.id)
        elif not record.state.ended and _is_only_blocked(record, reason):
            await self._block(delivery, record, reason)
        elif not record.state.ended:
            await self._joblog.bury(record, reason.error, trace_of(delivery.headers))

    async def _block(self, delivery: Delivery, record: JobRecord, reason: Rejected) -> None:
        """A workflow whose code is missing waits for it, however long. Raises BusError."""
        source, now = self._joblog.source, broker_time(self._bus)
        trace = trace_of(delivery.headers)
        if reason.made_from < record.changed_by and record.message != delivery.sequence:
            return  # made for an earlier wait, perhaps for other code
        match settle(record, delivery.sequence, reason.made_from, reason.attempt, now, _ANY_LOSSES):
            case Action.DROP:
                return
            case Action.FOLLOW_UP:
                await self._joblog.follow_up(record, trace)
                return
        event = blocked(record, reason.error.message, source=source, now=now)
        after = await self._joblog.append_if(record, event, trace)
        if after is None:  # another worker, or a cancel, was first
            return
        await self._joblog.follow_up(after, trace)
        self._log.write(
            logging.ERROR, record.function,
            "workflow %s is blocked: %s", record.id, reason.error.message,
        )  # fmt: skip

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
        once = Expect(0, subject)
        try:
            await self._bus.append(Outgoing(subject, msgspec.json.encode(letter), {}, once))
        except WrongSequence:  # stored already, by a worker that could not acknowledge it
            return
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
            Those that have waited too long and will not go again, or are no job's.
        """
        now = self._bus.now()
        over: list[tuple[Delivery, Rejected]] = []
        waiting: list[tuple[Delivery, Locked]] = []
        for delivery, reason in locked:
            waited = delivery.stored_at - _locked_since(delivery)
            if waited >= self._missing_key_seconds:
                why = f"{reason}; waited {waited:.0f} s for it (encryption.missing_key_seconds)"
                over.append((delivery, _rejected("missing-key", why, reason)))
            else:
                self._log.write(
                    logging.ERROR, reason.key, "job %s waits: %s", reason.job_id, reason
                )
                waiting.append((delivery, reason))
        outcomes = await bounded.gather(partial(self._later, now), waiting, AT_ONCE)
        results = [(delivery, out) for (delivery, _), out in zip(waiting, outcomes, strict=True)]
        await self._bus.ack([delivery for delivery, out in results if out is None])
        if failed := [delivery for delivery, out in results if isinstance(out, BusError)]:
            log.warning("%d messages without a key are given back", len(failed))
            await self.give_back_later(failed)
        return over + [(delivery, out) for delivery, out in results if isinstance(out, Rejected)]

    async def _later(
        self, now: float, message: tuple[Delivery, Locked]
    ) -> Rejected | BusError | None:
        delivery, reason = message
        since = _locked_since(delivery)
        pause = pause_seconds(delivery.stored_at - since, random.random())  # noqa: S311
        headers = {
            queue_messages.LOCKED_SINCE: f"{since:.3f}",
            **handed_on.headers(str(reason), since + self._missing_key_seconds),
        }
        is_first = queue_messages.LOCKED_SINCE not in delivery.headers
        due = datetime.fromtimestamp(now + pause, UTC)
        try:
            return await self._postponer.postpone(delivery, reason, due, headers, is_first)
        except UnreadableJob as error:
            return Rejected("malformed", str(error))
        except PayloadTooLarge as error:
            why = f"{reason}; it is too large to wait for it: {error}"
            return _rejected("missing-key", why, reason)
        except BusError as error:  # also WrongSequence: another process decides about the job
            return error
        except Exception as error:  # it would end each worker that takes the message
            note(f"message {delivery.sequence} on {delivery.subject}", error)
            return Rejected("malformed", f"it cannot wait for its key: {error!r}")

    async def give_back_later(self, deliveries: Sequence[Delivery]) -> None:
        """Naks with a delay, else redelivery spins: the broker refuses now."""
        if deliveries:
            await asyncio.sleep(_LATER_SECONDS)
            await self._bus.give_back([delivery.ack_subject for delivery in deliveries])


def _is_only_blocked(record: JobRecord, reason: Rejected) -> bool:
    """Whether other code would run it; what no code ever ran may be an error of its sender."""
    if not record.is_workflow:
        return False
    has_run = record.workflow is not None and bool(record.workflow.entries)
    return reason.lacks_code or (has_run and reason.error.kind == "bad-arguments")


def pause_seconds(waited_seconds: float, chance: float) -> float:
    """How long a job without its key is not offered again.

    Args:
        waited_seconds: how long it has waited for its key.
        chance: in [0, 1), so that jobs that were refused together do not come back together.
    """
    longest = min(max(waited_seconds, _LOCKED_SECONDS), _MAX_LOCKED_SECONDS)
    return longest * (1 + chance) / 2


def _locked_since(delivery: Delivery) -> float:
    return queue_messages.since(delivery, queue_messages.LOCKED_SINCE)


def _rejected(kind: str, why: str, reason: Locked) -> Rejected:
    return Rejected(kind, why, reason.job_id, reason.made_from)
