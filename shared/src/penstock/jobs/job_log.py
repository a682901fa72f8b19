"""The events of single jobs: read, append by compare-and-set, and store what follows from them.

Worker, executor, orchestrator and client all write to a job's events through this module, so that a
transition is the same in all of them: first the event, expecting the last sequence that its
writer read; then the message that follows from the job's new state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import NamedTuple

from penstock.bus.protocol import (
    Bus,
    Expect,
    Outgoing,
    PayloadTooLarge,
    WrongSequence,
    broker_time,
)
from penstock.events.envelope import Event, UnknownEvent, encode
from penstock.events.job import JOB_EVENTS, JobDead, JobError, JobEvent, JobTagged
from penstock.events.subjects import BadName, Subjects, check_name
from penstock.events.workflow import INBOX_EVENTS, InboxCarried, SignalReceived
from penstock.events.workflow_memo import MAX_INBOX_BYTES, MAX_INBOX_SIGNALS
from penstock.jobs import lifecycle
from penstock.jobs.errors import UnreadableJob
from penstock.jobs.event_store import event_log
from penstock.jobs.event_store.event_log import History
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages
from penstock.jobs.running import expiring_results
from penstock.jobs.shortened_history import without_tail
from penstock.jobs.workflows.coded.consumed_signals import ConsumedSignals
from penstock.jobs.workflows.coded.inbox import without_value
from penstock.runtime.limited_log import LimitedLog

log = logging.getLogger("penstock.jobs")
_MAX_TRACE_LENGTH = 100
_TAGGED = f".{JobTagged.__name__}"
_MOST_JOBS_LOGGED = 50
_INBOXES_AT_ONCE = 4
_ignored_events = LimitedLog(log, max_keys=_MOST_JOBS_LOGGED)


class Inbox(NamedTuple):
    """What was read of a workflow's inbox.

    Attributes:
        events: with their sequences.
        is_full: it holds as much as it may; there may be more that was not read.
    """

    events: History
    is_full: bool


class JobLog:
    """Reads and appends the events of jobs.

    Args:
        bus: a connected bus.
        subjects: names of streams and subjects.
        source: what the events that are built here name as their origin.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str = "") -> None:
        self._bus = bus
        self._inboxes = asyncio.Semaphore(_INBOXES_AT_ONCE)
        self.subjects, self.source = subjects, source

    # --- reading ----------------------------------------------------------------------------------
    async def history(self, job_id: str) -> History:
        """Every event of a job; empty when there is none.

        Events that :func:`penstock.jobs.lifecycle.fold` ignores are included, and logged; but
        for the rest of a history whose beginning left the log, the usual fate of old jobs.
        """
        return (await self.traced_history(job_id))[0]

    async def traced_history(self, job_id: str) -> tuple[History, str]:
        """The same, and the trace parent of the job's dispatch; empty where it has none."""
        stream, subject = self.subjects.events_stream, self.subjects.job(job_id)
        messages = await event_log.read_messages(self._bus, stream, subject)
        events = tuple(
            (stored.sequence, event_log.read_event(stored, JOB_EVENTS)) for stored in messages
        )
        for sequence, reason in lifecycle.ignored_events(without_tail(events)):
            _ignored_events.write(
                logging.WARNING, job_id, "job %s: event %d is ignored: %s", job_id, sequence, reason
            )
        parents = (trace_of(stored.headers).get("traceparent", "") for stored in messages)
        return events, next(filter(None, parents), "")

    async def inbox(self, workflow_id: str, consumed: ConsumedSignals) -> Inbox:
        """The oldest events of a workflow's inbox, as many as it may hold.

        Any key that may signal may store any number of them: what is beyond is not read, and few
        inboxes are read at the same time.

        Args:
            workflow_id: of the workflow.
            consumed: signals that do not count; events up to the first other one are not read.

        Raises:
            BusError
        """
        events: list[tuple[int, Event | UnknownEvent]] = []
        number = size = 0
        async with self._inboxes:
            for kind in (InboxCarried, SignalReceived):  # signals that were carried are older
                subject = self.subjects.events("workflow", workflow_id, kind.__name__)
                start = consumed.read_to + 1
                async for page in event_log.pages(
                    self._bus, self.subjects.events_stream, subject, start
                ):
                    for stored in page:
                        event = event_log.read_event(stored, INBOX_EVENTS)
                        if stored.sequence in consumed and isinstance(event, SignalReceived):
                            event = without_value(event)
                        else:
                            number, size = number + 1, size + len(stored.body)
                        events.append((stored.sequence, event))
                    if number >= MAX_INBOX_SIGNALS or size >= MAX_INBOX_BYTES:
                        return Inbox(tuple(events), is_full=True)
        return Inbox(tuple(events), is_full=False)

    async def read(self, job_id: str) -> JobRecord | None:
        """The job now; None when it has no events."""
        return lifecycle.fold(await self.history(job_id))

    async def read_checked(self, job_id: str) -> JobRecord | None:
        """The job now, for writers who put its queue into a subject.

        Raises:
            UnreadableJob: its events name a queue that cannot be one.
            BusError
        """
        try:
            record = await self.read(job_id)
            if record is not None:
                check_name("queue", record.queue)
        except BadName as error:
            raise UnreadableJob(f"the events of job {job_id} cannot be read: {error}") from error
        return record

    async def with_result(self, record: JobRecord) -> JobRecord:
        """The record with a result that is stored apart, unless it expired. Raises BusError."""
        return await expiring_results.with_result(self._bus, self.subjects, record)

    async def exists(self, job_id: str) -> bool:
        """Whether the log holds an event of the job. Raises BusError."""
        subject = self.subjects.job(job_id)
        return await self._bus.last(self.subjects.events_stream, subject) is not None

    async def is_over(self, job_id: str, made_from: int) -> bool:
        """Whether a job without events has ended, and its history was shortened.

        Args:
            made_from: sequence of the event that the job's message was made from.

        Raises:
            BusError
        """
        counts = await self._bus.count(self.subjects.events_stream, self.subjects.job(job_id))
        if any(not subject.endswith(_TAGGED) for subject in counts):
            return False  # of what has ended, tags that it was given later may be left
        first, _ = await event_log.begins_at(self._bus, self.subjects)
        return 0 < made_from < first

    async def dispatch_trace(self, job_id: str) -> dict[str, str]:
        """The trace header of the job's dispatch, so that its later messages join that trace."""
        first = await self._bus.next(self.subjects.events_stream, self.subjects.job(job_id), 1)
        parent = first.headers.get("traceparent") if first else None
        return {"traceparent": parent} if parent else {}

    # --- appending --------------------------------------------------------------------------------
    def outgoing(
        self, event: JobEvent, expected: int | None, trace: Mapping[str, str] | None = None
    ) -> Outgoing:
        """An event of a job as a message.

        Args:
            expected: sequence of the job's last event, else the broker refuses it; None for no
                condition.
            trace: trace headers to store with it.
        """
        expect = None if expected is None else Expect(expected, self.subjects.job(event.job_id))
        return Outgoing(self.subjects.event(event), encode(event), trace or {}, expect)

    async def append_if(
        self, record: JobRecord, event: JobEvent, trace: Mapping[str, str] | None = None
    ) -> JobRecord | None:
        """Stores an event if the job is still as it was read.

        Args:
            trace: trace headers to store with it; None for those of the current span.

        Returns:
            The job after the event; None when it has another event since.

        Raises:
            BusError
        """
        sequence = await event_log.append_if(
            self._bus, self.subjects, event, record.sequence, trace
        )
        return None if sequence is None else lifecycle.evolve(record, event, sequence)

    async def follow_up(self, record: JobRecord, trace: Mapping[str, str]) -> Outgoing | None:
        """Stores the message that must exist for a job in this state.

        Returns:
            The message; None when none must, or it is there.

        Raises:
            BusError
        """
        if record.state is State.DEAD:
            return await self._store_letter(record, trace)
        message = queue_messages.follow_up(self.subjects, record, broker_time(self._bus), trace)
        if message is not None:
            await self._bus.append(message)
        return message

    async def _store_letter(self, record: JobRecord, trace: Mapping[str, str]) -> Outgoing | None:
        if await self._was_requeued(record):
            return None  # at once: a dead letter stored now would stay
        letter = queue_messages.dead_letter(self.subjects, record, trace)
        try:
            try:
                await self._bus.append(letter)
            except PayloadTooLarge:
                letter = queue_messages.dead_letter(
                    self.subjects, record, trace, with_payload=False
                )
                await self._bus.append(letter)
        except WrongSequence:  # another process was first
            return None
        return letter

    async def bury(
        self, record: JobRecord, end: JobDead | JobError, trace: Mapping[str, str]
    ) -> None:
        """Ends a job as dead and stores its dead letter.

        Args:
            end: the event, or the error that it shall name.

        Raises:
            WrongSequence: the job has another event since ``record``.
            BusError
        """
        event = end if isinstance(end, JobDead) else self._death(record, end)
        sequence = await self._bus.append(self.outgoing(event, record.sequence, trace))
        await self.follow_up(lifecycle.evolve(record, event, sequence), trace)
        log.warning("job %s is dead: %s: %s", record.id, event.error.kind, event.error.message)

    def _death(self, record: JobRecord, error: JobError) -> JobDead:
        return JobDead(
            job_id=record.id,
            correlation_id=record.id,
            source=self.source,
            queue=record.queue,
            function=record.function,
            error=error,
            attempt=record.attempt,
        )

    async def _was_requeued(self, record: JobRecord) -> bool:
        """Whether a dead job began a new life since, so that its letter must not be stored."""
        current = await self.read(record.id)
        return current is not None and current.life > 1 and current.life_from > record.sequence


def trace_of(headers: Mapping[str, str]) -> dict[str, str]:
    """The trace headers among those of a message; none that could break out of a header."""
    parent = headers.get("traceparent", "")
    is_safe = parent and len(parent) <= _MAX_TRACE_LENGTH and parent.isprintable()
    return {"traceparent": parent} if is_safe else {}
