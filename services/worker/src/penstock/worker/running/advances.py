"""Advances of workflows: what an author's coroutine needs of the broker, from the job's thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any, TypeVar

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusUnavailable, Stored, WrongSequence, broker_time
from penstock.events.envelope import new_id
from penstock.events.job import JOB_EVENTS, JobCompleted, JobError, JobEvent
from penstock.events.workflow import (
    INBOX_EVENTS,
    InlineResult,
    Resolution,
    ScheduledStep,
    StepRecorded,
    WorkflowAdvanced,
    WorkflowMemo,
)
from penstock.jobs import derived_ids, lifecycle
from penstock.jobs.dispatch.dispatcher import Dispatcher
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.errors import Cancelled
from penstock.jobs.event_store import event_log
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.coded import inbox, memo
from penstock.jobs.workflows.coded.advancing import Arrivals, advance
from penstock.jobs.workflows.coded.commands import RunJob
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.coded.nodes import Diverged, Ended, Leaf
from penstock.jobs.workflows.coded.workflow_type import WorkflowType
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.commits import own_record
from penstock.worker.running.outcome import Blocked, Suspended

log = logging.getLogger("penstock.worker")

T = TypeVar("T")
_RETRY_SECONDS = 0.1
_READS_AT_ONCE = 100


class Advances:
    """Runs workflows as far as they go. Called in the jobs' threads.

    Args:
        loop: the worker's, which everything that talks to the broker is handed to.
        dispatcher: encodes the calls of steps.
    """

    def __init__(
        self, bus: Bus, joblog: JobLog, dispatcher: Dispatcher, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._bus, self._joblog, self._dispatcher, self._loop = bus, joblog, dispatcher, loop

    def prepare(self, jobs: Iterable[ClaimedJob]) -> None:
        """Begins to read what the workflows among claimed jobs need; in the worker's loop."""
        for job in jobs:
            if job.kind.kind:
                job.surroundings = self._surroundings(job)
                job.surroundings.read_ahead()

    def _surroundings(self, job: ClaimedJob) -> WorkerSurroundings:
        return WorkerSurroundings(self._bus, self._joblog, self._dispatcher, self._loop, job)

    def run(self, job: ClaimedJob) -> Any:
        """What the workflow returned, else :class:`Suspended` or :class:`Blocked`.

        Raises:
            Cancelled: it was cancelled, or is another worker's now; and what the workflow raises.
        """
        around: WorkerSurroundings = job.surroundings or self._surroundings(job)
        workflow_memo = around.begin()
        kind, version = job.kind, workflow_memo.version
        if isinstance(kind, WorkflowType) and version and kind.serving(version) is not kind:
            return Blocked(kind.why_not(version), around.whole_record())
        try:
            outcome = advance(kind.function, job.arguments, job.id, workflow_memo, around)
        except Diverged as difference:
            return Blocked(f"{job.payload.function}: {difference}", around.whole_record())
        if isinstance(outcome, Ended):
            return outcome.value
        return Suspended(outcome, workflow_memo.advances + 1, around.record)


class WorkerSurroundings:
    """See :class:`penstock.jobs.workflows.coded.advancing.Surroundings`.

    Attributes:
        record: the job by its events.
    """

    record: JobRecord
    _arrivals: Arrivals

    def __init__(
        self,
        bus: Bus,
        joblog: JobLog,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        job: ClaimedJob,
    ) -> None:
        self._bus, self._joblog, self._dispatcher = bus, joblog, dispatcher
        self._loop, self._job = loop, job
        self._reading: asyncio.Task[tuple[WorkflowMemo, list[Resolution]]] | None = None

    # --- in the job's thread ----------------------------------------------------------------------
    def now(self) -> datetime:
        return broker_time(self._bus)

    def next_end(self, open_steps: Mapping[str, Leaf]) -> Resolution | None:
        return self._arrivals.next(open_steps, self.now())

    def encode(self, n: int, command: RunJob[Any]) -> bytes:
        step_id = derived_ids.step_id(self._job.id, n)
        event = self._dispatcher.prepare(command.call, step_id, terms=Terms(step=command.name))
        return event.payload

    def begin(self) -> WorkflowMemo:
        """What was recorded; reads how its open steps have ended so far. Call it first."""
        workflow_memo, ends = self._in_loop(self._read_before)
        self._arrivals = Arrivals(ends, lambda: self._in_loop(lambda: self._signals(workflow_memo)))
        return workflow_memo

    def whole_record(self) -> JobRecord:
        """The job by all its events; of those that suspended it only some are read at first."""
        return self._in_loop(lambda: own_record(self._joblog, self._job))

    def record_step(
        self,
        now: datetime,
        consumed: tuple[Resolution, ...],
        result: InlineResult,
        patches: tuple[str, ...],
    ) -> None:
        event = StepRecorded(
            id=new_id(),
            job_id=self._job.id,
            source=self._joblog.source,
            number=(self.record.workflow or memo.EMPTY).inline_steps + 1,
            now=now,
            consumed=consumed,
            inline=result,
            version=self._job.kind.version,
            patches=patches,
        )
        self._in_loop(lambda: self._append(event))

    def _in_loop(self, ask: Callable[[], Awaitable[T]]) -> T:
        return asyncio.run_coroutine_threadsafe(self._patiently(ask), self._loop).result()

    # --- in the worker's loop ---------------------------------------------------------------------
    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """However long the broker is away, while the attempt is this worker's."""
        while True:
            if self._job.lost:
                raise Cancelled
            try:
                return await ask()
            except BusUnavailable as error:
                log.warning("workflow %s waits for the broker: %s", self._job.id, error)
                await asyncio.sleep(_RETRY_SECONDS)

    def read_ahead(self) -> None:
        """Begins to read; while other jobs run, it costs no time."""
        self._reading = asyncio.ensure_future(self._begin())
        self._reading.add_done_callback(lambda reading: reading.cancelled() or reading.exception())

    async def _read_before(self) -> tuple[WorkflowMemo, list[Resolution]]:
        reading, self._reading = self._reading, None
        return await (reading or self._begin())

    async def _begin(self) -> tuple[WorkflowMemo, list[Resolution]]:
        workflow_memo = await self._memo()
        steps = memo.open_steps(workflow_memo).values()
        jobs = [step for step in steps if step.kind == "job"]
        ends = await bounded.gather(self._end_of, jobs, _READS_AT_ONCE)
        ended = sorted((end for end in ends if end is not None), key=lambda end: end[0])
        return workflow_memo, [resolution for _, resolution in ended]

    async def _memo(self) -> WorkflowMemo:
        """What was recorded: as much as the message says, where that was true at the start.

        Counting the messages of a history costs the broker more than all else in an advance.
        """
        counts = None if self._job.settled else queue_messages.recorded(self._job.delivery.headers)
        workflow_memo = None if counts is None else await self._counted_memo(*counts)
        if workflow_memo is None:
            self.record = await own_record(self._joblog, self._job)
            return self.record.workflow or memo.EMPTY
        self.record = _started(self._job, workflow_memo)
        return workflow_memo

    async def _counted_memo(self, advances: int, inline_steps: int) -> WorkflowMemo | None:
        """What was recorded; None where the last advance in the log says otherwise.

        A message that names too few does no harm: what its advance records has a number that was
        there before, and is ignored (see `memo`).
        """
        if not advances:
            return None if inline_steps else memo.EMPTY
        stream = self._joblog.subjects.events_stream
        last = await self._bus.last(stream, self._subject(WorkflowAdvanced))
        event = event_log.read_event(last, JOB_EVENTS) if last else None
        if last is None or not isinstance(event, WorkflowAdvanced):
            return None
        if (event.number, event.inline_steps) != (advances, inline_steps) or event.fixes:
            return None
        if (advances, inline_steps) == (1, 0):
            return memo.advanced(memo.EMPTY, event)
        parts = [
            await self._oldest(WorkflowAdvanced, advances),
            await self._oldest(StepRecorded, inline_steps),
        ]
        if [len(part) for part in parts] != [advances, inline_steps]:
            return None
        messages = sorted(chain.from_iterable(parts), key=lambda stored: stored.sequence)
        return _folded(messages)

    def _subject(self, kind: type[JobEvent]) -> str:
        return self._joblog.subjects.events("job", self._job.id, kind.__name__)

    async def _oldest(self, kind: type[JobEvent], count: int) -> list[Stored]:
        stream = self._joblog.subjects.events_stream
        return await self._bus.history(stream, self._subject(kind), count) if count else []

    async def _end_of(self, step: ScheduledStep) -> tuple[int, Resolution] | None:
        """How the job of a step ended, and where in the log; None while it lives."""
        job_id, subjects = derived_ids.step_id(self._job.id, step.n), self._joblog.subjects
        completion = await self._bus.last(
            subjects.events_stream, subjects.events("job", job_id, JobCompleted.__name__)
        )
        event = event_log.read_event(completion, JOB_EVENTS) if completion else None
        if completion and isinstance(event, JobCompleted) and event.result_until is None:
            return completion.sequence, Resolution(
                key=step.key, outcome="completed", value=event.result
            )
        record = await self._joblog.read(job_id)
        if record is None or not record.state.ended:
            return None
        if record.state is State.COMPLETED:
            record = await self._joblog.with_result(record)
            return record.changed_by, Resolution(
                key=step.key, outcome="completed", value=record.result
            )
        error = record.error or JobError(kind="cancelled", message=f"job {job_id} was cancelled")
        return record.changed_by, Resolution(
            key=step.key,
            outcome="failed" if record.state is State.DEAD else "cancelled",
            error=msgspec.structs.replace(error, traceback=""),
        )

    async def _signals(self, workflow_memo: WorkflowMemo) -> list[Signal]:
        subjects = self._joblog.subjects
        subject = subjects.events("workflow", self._job.id)
        events = await event_log.read_subject(
            self._bus, subjects.events_stream, subject, INBOX_EVENTS
        )
        return inbox.unread(events, memo.consumed_signals(workflow_memo))

    async def _append(self, event: StepRecorded) -> None:
        job = self._job
        while True:
            job.appending = asyncio.ensure_future(
                self._bus.append(self._joblog.outgoing(event, job.sequence, job.trace))
            )
            try:
                job.sequence = await job.appending
            except WrongSequence:
                self.record = await own_record(self._joblog, job)
                if self.record.changed_id == event.id:  # its own, whose answer was lost
                    return
            else:
                self.record = lifecycle.evolve(self.record, event, job.sequence)
                return


def _started(job: ClaimedJob, workflow_memo: WorkflowMemo) -> JobRecord:
    """The job after the start of this attempt, as far as its message holds it."""
    started_at = datetime.fromtimestamp(job.started_at, UTC)
    return JobRecord(
        id=job.id,
        queue=job.queue,
        function=job.payload.function,
        payload=job.delivery.body,
        state=State.RUNNING,
        sequence=job.sequence,
        dispatched_at=started_at,
        available_at=started_at,
        token=job.token,
        workflow=workflow_memo,
    )


def _folded(messages: Iterable[Stored]) -> WorkflowMemo | None:
    """None where one of them cannot be read."""
    workflow_memo = memo.EMPTY
    for stored in messages:
        match event_log.read_event(stored, JOB_EVENTS):
            case WorkflowAdvanced() as event:
                workflow_memo = memo.advanced(workflow_memo, event)
            case StepRecorded() as event:
                workflow_memo = memo.recorded(workflow_memo, event)
            case _:
                return None
    return workflow_memo
