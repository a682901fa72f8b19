"""Making the second half of a transition again, from the job's own events."""

from __future__ import annotations

import logging

from penstock.bus.protocol import Bus, PayloadTooLarge, broker_time
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.jobs import lifecycle, queue, story
from penstock.jobs.letters import died_at
from penstock.jobs.lifecycle import JobRecord, State

log = logging.getLogger("penstock.orchestrator")


class Healer:
    """Reads a job's events and stores what follows from its state.

    Idempotent: a second queue message is harmless, since a worker's first act is a compare-and-set
    on the sequence that the message carries; schedules and dead letters replace each other.

    Attributes:
        healed: how many messages were made again.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self.healed = 0
        self._bus = bus
        self._subjects = subjects

    async def record(self, job_id: str) -> JobRecord | None:
        """The job now; None when its events have aged out, or name no queue.

        Raises:
            BusError: the broker did not say.
        """
        try:
            record = lifecycle.fold(await story.read(self._bus, self._subjects, job_id))
            if record is not None:
                check_name("queue", record.queue)
        except BadName as error:
            log.error("job %s is left alone, its events cannot be read: %s", job_id, error)
            return None
        return record

    async def heal(self, record: JobRecord) -> bool:
        """Stores what must exist for a job in this state, if anything must.

        Returns:
            Whether something was missing, and was stored.

        Raises:
            BusError: it could not be stored now.
        """
        if await self._comes_again(record):
            return False
        if record.life > 1 and record.state is State.WAITING:
            await self._remove_old_letter(record)
        now, trace = broker_time(self._bus), await self._trace(record.id)
        message = queue.follow_up(self._subjects, record, now, trace)
        if message is None:
            return False
        try:
            await self._bus.append(message)
        except PayloadTooLarge as error:
            log.error("job %s cannot be helped: %s", record.id, error)
            return False
        self.healed += 1
        log.warning(
            "job %s is %s and nothing had followed: %s made again",
            record.id, record.state, message.subject,
        )  # fmt: skip
        return True

    async def _remove_old_letter(self, record: JobRecord) -> None:
        """Whoever revived the job may have died before removing what it died of."""
        stream, subject = self._subjects.dead_stream, self._subjects.dead(record.queue, record.id)
        stored = await self._bus.last(stream, subject)
        if stored and died_at(stored) < record.available_at.timestamp():
            await self._bus.remove(stream, subject, stored.sequence + 1)

    async def _comes_again(self, record: JobRecord) -> bool:
        """A job that was given back still has the message it was started from.

        One that waits for its key (see `encryption.missing_key_seconds`) has a schedule.
        """
        if record.state is not State.WAITING:
            return False
        if not record.message:
            schedule = self._subjects.schedule(record.queue, record.id)
            return await self._bus.last(self._subjects.jobs_stream, schedule) is not None
        subject = self._subjects.queue(record.queue)
        found = await self._bus.next(self._subjects.jobs_stream, subject, record.message)
        return found is not None and found.sequence == record.message

    async def _trace(self, job_id: str) -> dict[str, str]:
        """The job's story goes on in the trace of its dispatch."""
        first = await self._bus.next(self._subjects.events_stream, self._subjects.job(job_id), 1)
        found = first.headers.get("traceparent") if first else None
        return {"traceparent": found} if found else {}
