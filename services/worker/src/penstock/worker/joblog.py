"""The events of jobs, as this worker appends and reads them."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.bus.protocol import Bus, Expect, Outgoing, broker_time
from penstock.events.envelope import encode
from penstock.events.job import JobDead, JobError, JobEvent
from penstock.events.subjects import Subjects, check_name
from penstock.jobs import lifecycle, story
from penstock.jobs import queue as queues
from penstock.jobs.errors import IllegalTransition
from penstock.jobs.lifecycle import JobRecord

log = logging.getLogger("penstock.worker")

_MAX_TRACE_LENGTH = 100


class Unreadable(Exception):
    """A job's events cannot be read, or cannot have come in this order."""


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
        """The job now, and whether the event of that id is its last one.

        Raises:
            Unreadable, BusError
        """
        try:
            events = await story.read(self._bus, self.subjects, job_id)
            record = lifecycle.fold(events)
            if record is not None:
                check_name("queue", record.queue)
        except (ValueError, RecursionError, IllegalTransition) as error:
            raise Unreadable(f"the events of job {job_id} cannot be read: {error}") from error
        last = events[-1][1] if events else None
        return record, isinstance(last, JobEvent) and last.id == event_id

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
        message = queues.follow_up(self.subjects, record, broker_time(self._bus), _trace(headers))
        if message is not None:
            await self._bus.append(message)


def _trace(headers: Mapping[str, str]) -> dict[str, str]:
    """What joins an event to its story; nothing that could break out of a header."""
    found = headers.get("traceparent", "")
    fits = found and len(found) <= _MAX_TRACE_LENGTH and found.isprintable()
    return {"traceparent": found} if fits else {}
