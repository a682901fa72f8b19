"""Advances of workflows: what an author's coroutine needs of the broker, from the job's thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, BusUnavailable, WrongSequence, broker_time
from penstock.events.envelope import new_id
from penstock.events.job import JOB_EVENTS, JobCompleted, JobError
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
from penstock.jobs.workflows.coded import inbox, memo
from penstock.jobs.workflows.coded.advancing import Arrivals, advance
from penstock.jobs.workflows.coded.commands import RunJob
from penstock.jobs.workflows.coded.inbox import Signal
from penstock.jobs.workflows.coded.nodes import Diverged, Ended, Leaf
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.commits import own_record
from penstock.worker.running.outcome import Blocked, Suspended
from penstock.worker.running.recent_workflows import RecentWorkflows, from_advances

log = logging.getLogger("penstock.worker")

T = TypeVar("T")
_RETRY_SECONDS = 0.1
_READS_AT_ONCE = 100


class Advances:
    """Runs workflows as far as they go. Called in the jobs' threads.

    Args:
        loop: the worker's, which everything that talks to the broker is handed to.
        dispatcher: encodes the calls of steps.
        recent: workflows whose history need not be read.
    """

    def __init__(
        self,
        bus: Bus,
        joblog: JobLog,
        dispatcher: Dispatcher,
        loop: asyncio.AbstractEventLoop,
        recent: RecentWorkflows,
    ) -> None:
        self._bus, self._joblog, self._dispatcher, self._loop = bus, joblog, dispatcher, loop
        self._recent = recent

    def run(self, job: ClaimedJob) -> Any:
        """What the workflow returned, else :class:`Suspended` or :class:`Blocked`.

        Raises:
            Cancelled: it was cancelled, or is another worker's now; and what the workflow raises.
        """
        around = WorkerSurroundings(self._bus, self._joblog, self._dispatcher, self._loop, job)
        workflow_memo = around.begin(self._recent.take(job))
        try:
            outcome = advance(job.kind.function, job.arguments, job.id, workflow_memo, around)
        except Diverged as difference:
            reason = f"{job.payload.function}: {difference}"
            return Blocked(reason)
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

    # --- in the job's thread ----------------------------------------------------------------------
    def now(self) -> datetime:
        return broker_time(self._bus)

    def next_end(self, open_steps: Mapping[str, Leaf]) -> Resolution | None:
        return self._arrivals.next(open_steps, self.now())

    def encode(self, n: int, command: RunJob[Any]) -> bytes:
        step_id = derived_ids.step_id(self._job.id, n)
        event = self._dispatcher.prepare(command.call, step_id, terms=Terms(step=command.name))
        return event.payload

    def begin(self, record: JobRecord | None) -> WorkflowMemo:
        """What was recorded; reads how its open steps have ended so far. Call it first.

        Args:
            record: the job by its events; None where they are to be read.
        """
        self.record = record or self._in_loop(self._read)
        workflow_memo = self.record.workflow or memo.EMPTY
        steps = memo.open_steps(workflow_memo).values()
        jobs = [step for step in steps if step.kind == "job"]
        ends = self._in_loop(lambda: self._ends(jobs)) if jobs else []
        self._arrivals = Arrivals(ends, lambda: self._in_loop(lambda: self._signals(workflow_memo)))
        return workflow_memo

    def record_step(
        self, now: datetime, consumed: tuple[Resolution, ...], result: InlineResult
    ) -> None:
        event = StepRecorded(
            id=new_id(),
            job_id=self._job.id,
            source=self._joblog.source,
            now=now,
            consumed=consumed,
            inline=result,
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

    async def _read(self) -> JobRecord:
        """By the events of its advances where they are enough: one or two requests, not five."""
        subjects, after = self._joblog.subjects, self._job.beginning and self._job.beginning.after
        subject = subjects.events("job", self._job.id, WorkflowAdvanced.__name__)
        stored = await self._bus.last(subjects.events_stream, subject) if after else None
        last = event_log.read_event(stored, JOB_EVENTS) if stored else None
        if stored and stored.sequence == after and isinstance(last, WorkflowAdvanced):
            advances = [last]
            if last.number > 1 and last.entries == last.number:
                messages = await self._bus.history(subjects.events_stream, subject, last.number)
                events = (event_log.read_event(message, JOB_EVENTS) for message in messages)
                advances = [event for event in events if isinstance(event, WorkflowAdvanced)]
            if record := from_advances(self._job, advances):
                return record
        return await own_record(self._joblog, self._job)

    async def _ends(self, jobs: Sequence[ScheduledStep]) -> list[Resolution]:
        ends = await bounded.gather(self._end_of, jobs, _READS_AT_ONCE)
        ended = sorted((end for end in ends if end is not None), key=lambda end: end[0])
        return [resolution for _, resolution in ended]

    async def _end_of(self, step: ScheduledStep) -> tuple[int, Resolution] | None:
        """How the job of a step ended, and where in the log; None while it lives."""
        job_id = derived_ids.step_id(self._job.id, step.n)
        if (completion := await self._completion(job_id)) is not None:
            sequence, value = completion
            return sequence, Resolution(key=step.key, outcome="completed", value=value)
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

    async def _completion(self, job_id: str) -> tuple[int, bytes] | None:
        """Where a job completed, and its result: one request, where its events take five.

        A completed job never lives again. None: it did not complete, or its result lies apart.
        """
        subjects = self._joblog.subjects
        subject = subjects.events("job", job_id, JobCompleted.__name__)
        stored = await self._bus.last(subjects.events_stream, subject)
        event = event_log.read_event(stored, JOB_EVENTS) if stored else None
        if stored is None or not isinstance(event, JobCompleted) or event.result_until is not None:
            return None
        return stored.sequence, event.result

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
