"""Reading what workflows have recorded and how their steps ended, for many of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, Stored
from penstock.events.job import JOB_EVENTS, JobCompleted, JobError, JobEvent
from penstock.events.workflow import (
    StepRecorded,
    WorkflowAdvanced,
)
from penstock.events.workflow_memo import (
    Resolution,
    ScheduledStep,
    WorkflowMemo,
)
from penstock.jobs import derived_ids
from penstock.jobs.event_store import event_log
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import missing_result
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.coded import memo, step_ends
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.commits import own_record
from penstock.worker.running.recent_workflows import RecentWorkflow, RecentWorkflows

_READS_AT_ONCE = 100
_NOTHING = RecentWorkflow(memo.EMPTY, 0, 0)


class WorkflowHistory(NamedTuple):
    """A workflow as its advance finds it.

    Attributes:
        record: the job by its events, its start included.
        ends: of its open steps that are jobs, in the order in which they ended.
    """

    record: JobRecord
    ends: list[Resolution]


class WorkflowReader:
    """Reads as much as the messages of workflows say that they have recorded.

    Counting the messages of a history costs the broker more than all else in an advance; reading
    for each workflow by itself costs more than the rest.

    Args:
        recent: workflows of which less needs to be read.
    """

    def __init__(self, bus: Bus, joblog: JobLog, recent: RecentWorkflows) -> None:
        self._bus, self._joblog, self._recent = bus, joblog, recent
        self._stream = joblog.subjects.events_stream

    async def read(self, job: ClaimedJob) -> WorkflowHistory:
        """One workflow. Raises BusError, Cancelled."""
        if history := (await self.read_ahead([job])).get(job.id):
            return history
        record = await own_record(self._joblog, job)
        ends = await self._ends({job.id: record.workflow or memo.EMPTY}, {})
        return WorkflowHistory(record, ends[job.id])

    async def read_ahead(self, jobs: Sequence[ClaimedJob]) -> dict[str, WorkflowHistory]:
        """Those of these workflows of which the messages say enough, by id. Raises BusError."""
        memos, completed = await asyncio.gather(self._memos(jobs), self._expected_ends(jobs))
        ends = await self._ends(memos, completed)
        return {
            job.id: WorkflowHistory(_started(job, memos[job.id]), ends[job.id])
            for job in jobs
            if job.id in memos
        }

    # --- what they have recorded ------------------------------------------------------------------
    async def _memos(self, jobs: Sequence[ClaimedJob]) -> dict[str, WorkflowMemo]:
        """By id; without those of which the last advance in the log is not as the message says.

        A message that names too few advances does no harm: what follows has a number that was
        there before, and is ignored (see `memo`).
        """
        memos: dict[str, WorkflowMemo] = {}
        unread: list[tuple[ClaimedJob, int, tuple[int, int]]] = []
        for job in jobs:
            counts = _recorded(job)
            sequence = _made_from(job)
            recent = self._recent.get(job.id)
            if counts == (0, 0):
                memos[job.id] = memo.EMPTY
            elif recent and recent.sequence == sequence:
                memos[job.id] = recent.memo
            elif counts is not None and counts[0]:
                unread.append((job, sequence, counts))
        read = await self._unread_memos(unread)
        for (job, sequence, counts), part in zip(unread, read, strict=True):
            before, messages = part
            last = max((one.sequence for one in messages if _is_advance(one)), default=0)
            after = _folded(before.memo, messages) if last == sequence else None
            if after is not None and (after.advances, after.inline_steps) == counts:
                memos[job.id] = after
        return memos

    async def _unread_memos(
        self, unread: Sequence[tuple[ClaimedJob, int, tuple[int, int]]]
    ) -> list[tuple[RecentWorkflow, list[Stored]]]:
        """What is known of each workflow, and the events that it recorded since."""
        before = [self._older(job, counts) for job, _, counts in unread]
        missing = [
            (counts[0] - older.memo.advances, counts[1] - older.memo.inline_steps)
            for (_, _, counts), older in zip(unread, before, strict=True)
        ]
        single = [
            self._subject(job.id, WorkflowAdvanced)
            for (job, _, _), count in zip(unread, missing, strict=True)
            if count == (1, 0)
        ]
        last = await self._bus.last_of(self._stream, single) if single else {}

        async def rest(index: int) -> list[Stored]:
            workflow_id, after = unread[index][0].id, before[index].sequence
            if missing[index] == (1, 0):
                stored = last.get(self._subject(workflow_id, WorkflowAdvanced))
                return [stored] if stored else []
            parts = await asyncio.gather(
                self._after(after, workflow_id, WorkflowAdvanced, missing[index][0]),
                self._after(after, workflow_id, StepRecorded, missing[index][1]),
            )
            return sorted(chain.from_iterable(parts), key=lambda stored: stored.sequence)

        read = await bounded.gather(rest, range(len(unread)), _READS_AT_ONCE)
        return list(zip(before, read, strict=True))

    def _older(self, job: ClaimedJob, counts: tuple[int, int]) -> RecentWorkflow:
        before = self._recent.get(job.id) or _NOTHING
        is_older = before.memo.advances < counts[0] and before.memo.inline_steps <= counts[1]
        return before if is_older else _NOTHING

    async def _after(
        self, sequence: int, workflow_id: str, kind: type[JobEvent], count: int
    ) -> list[Stored]:
        if not count:
            return []
        subject = self._subject(workflow_id, kind)
        return await self._bus.history(self._stream, subject, count, sequence + 1)

    def _subject(self, job_id: str, kind: type[JobEvent]) -> str:
        return self._joblog.subjects.events("job", job_id, kind.__name__)

    # --- how their steps ended --------------------------------------------------------------------
    async def _expected_ends(self, jobs: Sequence[ClaimedJob]) -> dict[str, Stored]:
        """Completions of the steps that the messages name as ended, by job id."""
        ids = [
            derived_ids.step_id(job.id, n)
            for job in jobs
            for n in queue_messages.ended(job.delivery.headers)
        ]
        return await step_ends.completions(self._bus, self._joblog.subjects, ids) if ids else {}

    async def _ends(
        self, memos: Mapping[str, WorkflowMemo], completed: Mapping[str, Stored]
    ) -> dict[str, list[Resolution]]:
        """Of the open steps of workflows that are jobs.

        Args:
            memos: by id of the workflow.
            completed: completions that were read before, by job id.
        """
        steps = [
            (workflow_id, step)
            for workflow_id, workflow_memo in memos.items()
            for step in memo.open_steps(workflow_memo).values()
            if step.is_job
        ]
        ends: dict[str, list[tuple[int, Resolution]]] = {workflow_id: [] for workflow_id in memos}
        if steps:
            for (workflow_id, _), end in zip(
                steps, await self._ends_of(steps, completed), strict=True
            ):
                if end is not None:
                    ends[workflow_id].append(end)
        return {
            workflow_id: [resolution for _, resolution in sorted(ended, key=lambda end: end[0])]
            for workflow_id, ended in ends.items()
        }

    async def _ends_of(
        self, steps: Sequence[tuple[str, ScheduledStep]], completed: Mapping[str, Stored]
    ) -> list[tuple[int, Resolution] | None]:
        """How the job of each ended, and where in the log; None while it lives."""
        ids = [derived_ids.step_id(workflow_id, step.n) for workflow_id, step in steps]
        states = await step_ends.of_jobs(self._bus, self._joblog.subjects, ids, completed)

        async def end_of(index: int) -> tuple[int, Resolution] | None:
            _, step = steps[index]
            if ids[index] in states.living:
                return None
            completion = states.completed.get(ids[index])
            event = event_log.read_event(completion, JOB_EVENTS) if completion else None
            if completion and isinstance(event, JobCompleted) and event.result_until is None:
                return completion.sequence, Resolution(
                    key=step.key, outcome="completed", value=event.result
                )
            return await self._other_end(ids[index], step)

        return await bounded.gather(end_of, range(len(steps)), _READS_AT_ONCE)

    async def _other_end(self, job_id: str, step: ScheduledStep) -> tuple[int, Resolution] | None:
        record = await self._joblog.read(job_id)
        if record is None or not record.state.ended:
            return None
        if record.state is State.COMPLETED:
            record = await self._joblog.with_result(record)
            if record.result_until is not None and not record.result:
                error = JobError(kind="result-expired", message=missing_result(record))
                return record.changed_by, Resolution(key=step.key, outcome="failed", error=error)
            return record.changed_by, Resolution(
                key=step.key, outcome="completed", value=record.result
            )
        error = record.error or JobError(kind="cancelled", message=f"job {job_id} was cancelled")
        return record.changed_by, Resolution(
            key=step.key,
            outcome="failed" if record.state is State.DEAD else "cancelled",
            error=msgspec.structs.replace(error, traceback=""),
        )


def needs_no_reading(job: ClaimedJob) -> bool:
    """Whether a workflow has recorded nothing, by its message."""
    return _recorded(job) == (0, 0)


def _recorded(job: ClaimedJob) -> tuple[int, int] | None:
    """Advances and inline steps, where the workflow started at the event of its message."""
    return None if job.settled else queue_messages.recorded(job.delivery.headers)


def _made_from(job: ClaimedJob) -> int:
    """Sequence of the event that the message was made from; 0 where it started at another."""
    if job.settled:
        return 0
    sequence = job.delivery.headers.get(queue_messages.SEQUENCE, "")
    return int(sequence) if sequence.isdecimal() else 0


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


def _is_advance(stored: Stored) -> bool:
    return stored.subject.endswith(f".{WorkflowAdvanced.__name__}")


def _folded(workflow_memo: WorkflowMemo, messages: Iterable[Stored]) -> WorkflowMemo | None:
    """The memo after these events; None where one of them cannot be read."""
    for stored in messages:
        match event_log.read_event(stored, JOB_EVENTS):
            case WorkflowAdvanced() as event:
                workflow_memo = memo.advanced(workflow_memo, event)
            case StepRecorded() as event:
                workflow_memo = memo.recorded(workflow_memo, event)
            case _:
                return None
    return workflow_memo
