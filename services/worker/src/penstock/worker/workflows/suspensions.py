"""Recording that a workflow waits: the event by compare-and-set, then what follows from it.

What a crash leaves out between the two, the orchestrator makes up for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from penstock import telemetry
from penstock.bus.protocol import Bus, BusError, BusUnavailable, WrongSequence, broker_time
from penstock.events.envelope import whole_micros
from penstock.events.workflow import (
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowContinued,
)
from penstock.events.workflow_memo import ScheduledStep
from penstock.jobs import lifecycle
from penstock.jobs.dispatch.sender import Sender
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.coded.blocking import blocked
from penstock.jobs.workflows.coded.step_jobs import step_events
from penstock.jobs.workflows.coded.workflow_type import WorkflowType
from penstock.runtime.limited_log import LimitedLog
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.outcome import BeginsAnew, Blocked, FinishedJob, Outcome, Suspended
from penstock.worker.workflows.recent_workflows import RecentWorkflows

log = logging.getLogger("penstock.worker")

_MAX_PAYLOAD_BYTES = 2_000
"""Of a call that is repeated in the event of each advance."""


class Advance(NamedTuple):
    """One that has run and is to be stored."""

    job: ClaimedJob
    outcome: Outcome
    event: WorkflowAdvanced


class RefusedAdvance(NamedTuple):
    """One that is not stored, as far as is known, and why."""

    advance: Advance
    refusal: BusError


class Suspensions:
    """Stores them, and dispatches the steps that they schedule.

    Args:
        recent: where they are noted.
    """

    def __init__(self, bus: Bus, joblog: JobLog, sender: Sender, recent: RecentWorkflows) -> None:
        self._bus, self._joblog, self._sender, self._recent = bus, joblog, sender, recent
        self._log = LimitedLog(log)

    def blocked(self, job: ClaimedJob, verdict: Blocked) -> WorkflowBlocked:
        """What is recorded of an advance that its workflow's code does not fit."""
        self._log.write(
            logging.ERROR, job.payload.function, "workflow %s is blocked: %s", job.id, verdict
        )
        source, now = self._joblog.source, broker_time(self._bus)
        return blocked(verdict.record, str(verdict), source=source, now=now)

    def begins_anew(self, job: ClaimedJob, verdict: BeginsAnew) -> WorkflowContinued:
        """What is recorded of a workflow that begins a further generation."""
        return WorkflowContinued(
            job_id=job.id,
            source=self._joblog.source,
            queue=job.queue,
            function=job.payload.function,
            generation=verdict.generation,
            payload=verdict.payload,
            read_to=verdict.mark.read_to,
            read=verdict.read,
            read_ids=verdict.mark.ids,
            version=job.kind.version,
        )

    async def store(self, finished: Sequence[FinishedJob]) -> list[RefusedAdvance]:
        """Stores advances without reading: first the events, then their steps and timers.

        Last, the messages of what was stored are acknowledged.

        Returns:
            Those that something stands against.
        """
        advances = [self._advance(*one) for one in finished]
        messages = [
            self._joblog.outgoing(advance.event, advance.job.sequence, advance.job.trace)
            for advance in advances
        ]
        try:
            answers = await self._bus.append_many(messages)
        except BusUnavailable as error:
            return [RefusedAdvance(advance, error) for advance in advances]
        stored: list[tuple[Advance, int]] = []
        refused: list[RefusedAdvance] = []
        for advance, answer in zip(advances, answers, strict=True):
            if isinstance(answer, BusError):
                refused.append(RefusedAdvance(advance, answer))
            else:
                stored.append((advance, answer))
        await self._follow_up(stored)
        await self._bus.ack([advance.job.delivery for advance, _ in stored])
        return refused

    def _advance(self, job: ClaimedJob, outcome: Outcome) -> Advance:
        verdict = outcome.verdict
        assert isinstance(verdict, Suspended)
        workflow = verdict.record.workflow
        payload = job.delivery.body
        event = WorkflowAdvanced(
            job_id=job.id,
            source=self._joblog.source,
            queue=job.queue,
            function=job.payload.function,
            number=verdict.number,
            run_seconds=whole_micros(outcome.run_seconds),
            inline_steps=verdict.inline_steps,
            version=job.kind.version,
            fixes=workflow.fixes if workflow else 0,
            payload=payload if len(payload) <= _MAX_PAYLOAD_BYTES else b"",
            ends_by=(workflow.ends_by if workflow else None) or _ends_by(job),
            **msgspec.structs.asdict(verdict.suspension),
        )
        return Advance(job, outcome, event)

    async def _follow_up(self, stored: Sequence[tuple[Advance, int]]) -> None:
        timers: list[tuple[ClaimedJob, JobRecord]] = []
        for (job, outcome, event), sequence in stored:
            assert isinstance(outcome.verdict, Suspended)
            record = lifecycle.evolve(outcome.verdict.record, event, sequence)
            if outcome.verdict.record.sequence == job.sequence:  # else an event lies in between
                self._recent.keep(record.id, record.workflow or memo.EMPTY, sequence)
            if event.due_at is not None:
                timers.append((job, record))
        await self.dispatch_steps([advance for advance, _ in stored])
        await asyncio.gather(*(self._start_timer(job, record) for job, record in timers))

    async def _start_timer(self, job: ClaimedJob, record: JobRecord) -> None:
        try:
            await self._joblog.follow_up(record, job.trace)
        except BusError as error:
            log.warning("workflow %s: its timer waits for the reconciler: %s", job.id, error)

    async def dispatch_steps_unless_paused(self, advance: Advance) -> None:
        """The same where a client may have paused the workflow while the advance ran.

        The orchestrator dispatches the steps of a paused one when it is resumed.
        """
        job = advance.job
        try:
            record = await self._joblog.read(job.id)
        except BusError as error:
            log.warning("workflow %s: its steps wait for the reconciler: %s", job.id, error)
            return
        if record is not None and not record.is_paused:
            await self.dispatch_steps([advance])

    async def dispatch_steps(self, advances: Sequence[Advance]) -> None:
        """Dispatches the jobs that they scheduled; a job that exists is left as it is."""
        by_trace: dict[str, list[tuple[ClaimedJob, Iterable[ScheduledStep]]]] = {}
        for job, _, event in advances:
            if event.scheduled:
                trace = job.trace.get("traceparent", "")
                by_trace.setdefault(trace, []).append((job, event.scheduled))
        source = self._joblog.source
        await asyncio.gather(*(send_steps(self._sender, of, source) for of in by_trace.values()))


def _ends_by(job: ClaimedJob) -> datetime | None:
    """When a workflow that is suspended for the first time must have ended; None: never."""
    kind = job.kind
    own_seconds = kind.whole_seconds if isinstance(kind, WorkflowType) else 0.0
    seconds = job.payload.workflow_timeout_seconds or own_seconds
    return datetime.fromtimestamp(job.started_at + seconds, UTC) if seconds else None


async def send_steps(
    sender: Sender,
    steps: Sequence[tuple[ClaimedJob, Iterable[ScheduledStep]]],
    source: str,
) -> None:
    """Dispatches the jobs of recorded steps, as far as the broker takes them now.

    Args:
        steps: of one workflow, or of several of one trace.
    """
    events = [event for job, of_one in steps for event in step_events(job.id, of_one, source)]
    with telemetry.within(steps[0][0].trace):
        answers = await sender.send_many(events, into_reserve=True)
    for event, answer in zip(events, answers, strict=True):
        if isinstance(answer, BusError) and not isinstance(answer, WrongSequence):
            log.warning("step %s waits for the reconciler: %s", event.job_id, answer)
            return
