"""Completes a transition: stores its second half again, from the job's own events."""

from __future__ import annotations

import logging

from penstock.bus.protocol import Bus, PayloadTooLarge
from penstock.events.subjects import Subjects
from penstock.jobs.dead_letters.letter import died_at
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State

log = logging.getLogger("penstock.orchestrator")


class TransitionCompleter:
    """Reads a job's events and stores what follows from its state.

    Idempotent: a second queue message is harmless, since a worker's first act is a compare-and-set
    on the sequence that the message carries; schedules and dead letters replace each other.

    Attributes:
        completed: how many messages were stored again.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self.completed = 0
        self._bus = bus
        self._subjects = subjects
        self._log = JobLog(bus, subjects)

    async def record(self, job_id: str) -> JobRecord | None:
        """The job now; None when its events have aged out, or name no queue.

        Raises:
            BusError: the broker did not answer.
        """
        try:
            return await self._log.read_checked(job_id)
        except UnreadableJob as error:
            log.error("job %s is not reconciled: %s", job_id, error)
            return None

    async def complete(self, record: JobRecord) -> bool:
        """Stores what must exist for a job in this state, if anything must.

        Returns:
            Whether something was missing, and was stored.

        Raises:
            BusError: it could not be stored now.
        """
        if await self._has_message(record):
            return False
        if record.life > 1 and record.state is State.WAITING:
            await self._remove_outdated_letter(record)
        try:
            trace = await self._log.dispatch_trace(record.id)
            message = await self._log.follow_up(record, trace)
        except PayloadTooLarge as error:
            log.error("job %s cannot be completed: %s", record.id, error)
            return False
        if message is None:
            return False
        self.completed += 1
        log.warning(
            "job %s is %s and its message was missing: stored %s again",
            record.id, record.state, message.subject,
        )  # fmt: skip
        return True

    async def _remove_outdated_letter(self, record: JobRecord) -> None:
        """The client that requeued the job may have died before removing the dead letter."""
        stream, subject = self._subjects.dead_stream, self._subjects.dead(record.queue, record.id)
        stored = await self._bus.last(stream, subject)
        if stored and died_at(stored) < record.available_at.timestamp():
            await self._bus.remove(stream, subject, stored.sequence + 1)

    async def _has_message(self, record: JobRecord) -> bool:
        """A job that was given back still has the message it was started from.

        One that waits for its key (see `encryption.missing_key_seconds`) has a schedule.
        """
        if record.state is not State.WAITING:
            return False
        if record.workflow is not None and record.workflow.generation:
            return False  # the message of its generation before may be there, and a timer of that
        if not record.message:
            schedule = self._subjects.schedule(record.queue, record.id)
            return await self._bus.last(self._subjects.jobs_stream, schedule) is not None
        subject = self._subjects.queue(record.queue)
        stored = await self._bus.next(self._subjects.jobs_stream, subject, record.message)
        return stored is not None and stored.sequence == record.message
