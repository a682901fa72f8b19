"""The events of jobs, as this worker appends and reads them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.jobs.dead_letters.reader import is_revived

from penstock.bus.protocol import Bus, Expect, Outgoing, broker_time
from penstock.events.envelope import encode
from penstock.events.job import JobDead, JobError, JobEvent
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.jobs import event_log, lifecycle
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages

log = logging.getLogger("penstock.worker")

_MAX_TRACE_LENGTH = 100


class Unreadable(Exception):
    """A job's events name a queue that cannot be one."""


class JobLog:
    """One worker's hand in the event log.

    Args:
        source: who this worker is, for the events.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus = bus
        self.subjects, self.source = subjects, source

    def outgoing(
        self, event: JobEvent, expected: int | None, headers: Mapping[str, str] | None = None
    ) -> Outgoing:
        """An event of a job, to be stored only if its last event is ``expected``."""
        trace = _trace(headers) if headers else {}
        expect = None if expected is None else Expect(expected, self.subjects.job(event.job_id))
        return Outgoing(self.subjects.event(event), encode(event), trace, expect)

    async def look_up(self, job_id: str, event_id: str = "") -> tuple[JobRecord | None, bool]:
        """The job now, and whether the event of that id is the last one that counts.

        Raises:
            Unreadable, BusError
        """
        try:
            record = lifecycle.fold(await event_log.read(self._bus, self.subjects, job_id))
            if record is not None:
                check_name("queue", record.queue)
        except BadName as error:
            raise Unreadable(f"the events of job {job_id} cannot be read: {error}") from error
        return record, record is not None and record.changed_id == event_id

    async def exists(self, job_id: str) -> bool:
        """Whether anything was ever stored about the job. Raises BusError."""
        subjects = self.subjects
        return await self._bus.last(subjects.events_stream, subjects.job(job_id)) is not None

    async def is_over(self, job_id: str, made_from: int) -> bool:
        """Whether a job without events has ended, and its history was shortened.

        Args:
            made_from: sequence of the event that the job's message was made from.

        Raises:
            BusError
        """
        if await self.exists(job_id):
            return False
        first, _ = await event_log.begins_at(self._bus, self.subjects)
        return 0 < made_from < first

    async def bury(
        self, record: JobRecord, end: JobDead | JobError, headers: Mapping[str, str]
    ) -> None:
        """Dead, with its dead letter. Raises BusError."""
        event = end if isinstance(end, JobDead) else self._died(record, end)
        sequence = await self._bus.append(self.outgoing(event, record.sequence, headers))
        await self.follow_up(lifecycle.evolve(record, event, sequence), headers)
        error = event.error
        log.warning("job %s is dead: %s: %s", record.id, error.kind, error.message)

    def _died(self, record: JobRecord, error: JobError) -> JobDead:
        return JobDead(
            job_id=record.id,
            correlation_id=record.id,
            source=self.source,
            queue=record.queue,
            error=error,
        )

    async def follow_up(self, record: JobRecord, headers: Mapping[str, str]) -> None:
        """Makes what must exist outside the log for a job in this state. Raises BusError."""
        if record.state is State.DEAD and await self._is_revived(record):
            return  # whoever waited for its end was quicker: a letter now would stay for good
        message = queue_messages.follow_up(
            self.subjects, record, broker_time(self._bus), _trace(headers)
        )
        if message is not None:
            await self._bus.append(message)

    async def _is_revived(self, record: JobRecord) -> bool:
        return await is_revived(self._bus, self.subjects, record.id, record.sequence)


def _trace(headers: Mapping[str, str]) -> dict[str, str]:
    """What joins an event to its story; nothing that could break out of a header."""
    found = headers.get("traceparent", "")
    fits = found and len(found) <= _MAX_TRACE_LENGTH and found.isprintable()
    return {"traceparent": found} if fits else {}
