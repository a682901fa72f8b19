"""Reading what workflows have recorded, for many of them together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import NamedTuple

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, Delivery, Stored
from penstock.events.job import JOB_EVENTS, JobDispatched, JobEvent, JobStarted
from penstock.events.subjects import BadName, check_name
from penstock.events.workflow import (
    StepRecorded,
    WorkflowAdvanced,
)
from penstock.events.workflow_memo import (
    Resolution,
    WorkflowMemo,
)
from penstock.jobs import derived_ids, lifecycle
from penstock.jobs.event_store import event_log, unbroken
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.coded import memo, step_ends
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.commits import own_record
from penstock.worker.workflows.ends_of_steps import EndsOfSteps
from penstock.worker.workflows.recent_workflows import RecentWorkflow, RecentWorkflows

_READS_AT_ONCE = 100
_NOTHING = RecentWorkflow(memo.EMPTY, 0, 0)
_ADVANCING = (WorkflowAdvanced, JobStarted)
"""Events of an advance without inline steps; of the first one there is the dispatch, too."""


class _Unread(NamedTuple):
    """A workflow of which something is to be read.

    Attributes:
        sequence: of the event that its message was made from.
        counts: advances and inline steps, by its message.
        before: what is known of it.
    """

    job: ClaimedJob
    sequence: int
    counts: tuple[int, int]
    before: RecentWorkflow

    @property
    def missing(self) -> tuple[int, int]:
        """Advances and inline steps since what is known."""
        return _missing(self.before, self.counts)

    @property
    def kinds(self) -> tuple[type[JobEvent], ...]:
        """Events of which each is looked for, whatever it recorded."""
        return _ADVANCING if self.before.sequence else (*_ADVANCING, JobDispatched)


class EarlyReading(NamedTuple):
    """What was read before workflows were claimed, and counts only for those that are then.

    Attributes:
        events: the last of each kind that an advance consists of, by workflow, oldest first.
        completed: steps that completed, by job id.
    """

    events: Mapping[str, list[Stored]]
    completed: Mapping[str, JobRecord]


NOT_READ = EarlyReading({}, {})


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
    for each workflow by itself costs more than the rest. So a few events are read of many, and the
    whole history where these do not prove themselves to be it (see `unbroken`).

    Args:
        recent: workflows of which less needs to be read.
    """

    def __init__(self, bus: Bus, joblog: JobLog, recent: RecentWorkflows) -> None:
        self._bus, self._joblog, self._recent = bus, joblog, recent
        self._stream = joblog.subjects.events_stream
        self._ends = EndsOfSteps(bus, joblog)

    async def read(self, job: ClaimedJob) -> WorkflowHistory:
        """One workflow. Raises BusError, Cancelled."""
        if history := (await self.read_ahead([job])).get(job.id):
            return history
        record = await own_record(self._joblog, job)
        ends = await self._ends.read({job.id: record.workflow or memo.EMPTY}, {})
        return WorkflowHistory(record, ends[job.id])

    async def read_early(self, deliveries: Sequence[Delivery]) -> EarlyReading:
        """What workflows that are woken need, before they are claimed. Raises BusError.

        A claim stores a start. The one before it is among the events that prove a history, and
        costs the broker ten times as much where it is not the last of its subject any more. Whether
        something was stored between this reading and the claim, the claim shows: it is
        compare-and-set.
        """
        woken = {one.headers[queue_messages.JOB]: one for one in deliveries if self._is_read(one)}
        if not woken:
            return NOT_READ
        steps = [
            derived_ids.step_id(workflow_id, n)
            for workflow_id, delivery in woken.items()
            for n in queue_messages.ended(delivery.headers)
        ]
        bus, subjects = self._bus, self._joblog.subjects
        events, completed = await asyncio.gather(
            step_ends.last_events(bus, subjects, list(woken), (*_ADVANCING, JobDispatched)),
            step_ends.completions(bus, subjects, steps),
        )
        return EarlyReading(events, completed)

    async def read_ahead(
        self, jobs: Sequence[ClaimedJob], early: EarlyReading = NOT_READ
    ) -> dict[str, WorkflowHistory]:
        """Those of these workflows of which the messages say enough, by id. Raises BusError.

        Args:
            early: what was read before they were claimed.
        """
        memos, completed = await asyncio.gather(
            self._memos(jobs, early), self._expected_ends(jobs, early)
        )
        ends = await self._ends.read(memos, completed)
        return {
            job.id: WorkflowHistory(_started(job, memos[job.id]), ends[job.id])
            for job in jobs
            if job.id in memos
        }

    def _is_read(self, delivery: Delivery) -> bool:
        """Whether the last events of the workflow of a message are all that is to be read of it."""
        counts = queue_messages.recorded(delivery.headers)
        if not counts or counts == (0, 0):
            return False
        workflow_id = delivery.headers.get(queue_messages.JOB, "")
        try:
            check_name("job", workflow_id)
        except BadName:
            return False
        recent = self._recent.get(workflow_id)
        if recent and str(recent.sequence) == delivery.headers.get(queue_messages.SEQUENCE):
            return False
        return _missing(self._older(workflow_id, counts), counts) == (1, 0)

    # --- what they have recorded ------------------------------------------------------------------
    async def _memos(
        self, jobs: Sequence[ClaimedJob], early: EarlyReading
    ) -> dict[str, WorkflowMemo]:
        """By id; without those whose latest events do not prove that nothing lies between them.

        A message that names too few advances does no harm: what follows has a number that was
        there before, and is ignored (see `memo`).
        """
        memos: dict[str, WorkflowMemo] = {}
        unread: list[_Unread] = []
        new = await self._new([job for job in jobs if _recorded(job) == (0, 0)])
        for job in jobs:
            counts = _recorded(job)
            sequence = _made_from(job)
            recent = self._recent.get(job.id)
            if job.id in new:
                memos[job.id] = memo.EMPTY
            elif recent and recent.sequence == sequence:
                memos[job.id] = recent.memo
            elif counts is not None and counts[0]:
                unread.append(_Unread(job, sequence, counts, self._older(job.id, counts)))
        read = await self._unread_events(unread, early)
        for one, messages in zip(unread, read, strict=True):
            tree = self._joblog.subjects.job(one.job.id)
            is_whole = unbroken.is_whole(messages, tree, one.before.sequence)
            if not is_whole or not messages or messages[-1].sequence != one.sequence:
                continue
            after = _folded(one, messages)
            if after is not None and (after.advances, after.inline_steps) == one.counts:
                memos[one.job.id] = after
        return memos

    async def _new(self, jobs: Sequence[ClaimedJob]) -> set[str]:
        """Ids of those that were started right behind their dispatch, and have its call.

        The counts of a message prove nothing: who may store one would have a workflow take its
        steps a second time.
        """
        subjects = {self._subject(job.id, JobDispatched): job for job in jobs}
        first = await self._bus.last_of(self._stream, list(subjects)) if subjects else {}
        new: set[str] = set()
        for subject, stored in first.items():
            job = subjects[subject]
            event = event_log.read_event(stored, JOB_EVENTS)
            if (
                stored.sequence == _made_from(job)
                and unbroken.is_first(stored, self._joblog.subjects.job(job.id))
                and isinstance(event, JobDispatched)
                and event.payload == job.delivery.body
            ):
                new.add(job.id)
        return new

    async def _unread_events(
        self, unread: Sequence[_Unread], early: EarlyReading
    ) -> list[list[Stored]]:
        """What each workflow recorded since it was known, and its starts, oldest first."""
        read_early = {one.job.id for one in unread if one.missing == (1, 0)} & early.events.keys()
        single = [one for one in unread if one.missing == (1, 0) and one.job.id not in read_early]
        last: dict[str, Stored] = {}
        if single:
            names = [self._subject(one.job.id, kind) for one in single for kind in one.kinds]
            first_start = min(one.job.token for one in single)  # those of now are not looked for
            last = await self._bus.last_of(self._stream, names, first_start)

        async def rest(index: int) -> list[Stored]:
            one = unread[index]
            if one.job.id in read_early:
                messages = early.events[one.job.id]
                return [stored for stored in messages if stored.sequence > one.before.sequence]
            if one.missing == (1, 0):
                names = [self._subject(one.job.id, kind) for kind in one.kinds]
                messages = [last[name] for name in names if name in last]
            else:
                counts: dict[type[JobEvent], int] = {
                    WorkflowAdvanced: one.missing[0],
                    StepRecorded: one.missing[1],
                    JobStarted: one.missing[0],
                    JobDispatched: JobDispatched in one.kinds,
                }
                reads = (self._after(one, kind, counts[kind]) for kind in counts)
                parts = await asyncio.gather(*reads)
                messages = list(chain.from_iterable(parts))
            return sorted(messages, key=lambda stored: stored.sequence)

        return await bounded.gather(rest, range(len(unread)), _READS_AT_ONCE)

    def _older(self, workflow_id: str, counts: tuple[int, int]) -> RecentWorkflow:
        before = self._recent.get(workflow_id) or _NOTHING
        is_older = before.memo.advances < counts[0] and before.memo.inline_steps <= counts[1]
        return before if is_older else _NOTHING

    async def _after(self, one: _Unread, kind: type[JobEvent], count: int) -> list[Stored]:
        if not count:
            return []
        subject = self._subject(one.job.id, kind)
        return await self._bus.history(self._stream, subject, count, one.before.sequence + 1)

    def _subject(self, job_id: str, kind: type[JobEvent]) -> str:
        return self._joblog.subjects.events("job", job_id, kind.__name__)

    # --- how their steps ended --------------------------------------------------------------------
    async def _expected_ends(
        self, jobs: Sequence[ClaimedJob], early: EarlyReading
    ) -> dict[str, JobRecord]:
        """Of the steps that the messages name as ended, those that completed, by job id."""
        ids = [
            derived_ids.step_id(job.id, n)
            for job in jobs
            for n in queue_messages.ended(job.delivery.headers)
        ]
        records = {job_id: early.completed[job_id] for job_id in ids if job_id in early.completed}
        unread = [job_id for job_id in ids if job_id not in records]
        if not unread:
            return records
        return records | await step_ends.completions(self._bus, self._joblog.subjects, unread)


def _missing(before: RecentWorkflow, counts: tuple[int, int]) -> tuple[int, int]:
    return counts[0] - before.memo.advances, counts[1] - before.memo.inline_steps


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


def _folded(one: _Unread, messages: Iterable[Stored]) -> WorkflowMemo | None:
    """The memo after these events, which are all that followed what is known; None for none."""
    record = _suspended(one) if one.before.sequence else None
    for stored in messages:
        record = lifecycle.advance(
            record, event_log.read_event(stored, JOB_EVENTS), stored.sequence
        )
    return record.workflow if record is not None and record.state is State.SUSPENDED else None


def _suspended(one: _Unread) -> JobRecord:
    """The job as this worker left it."""
    record, before = _started(one.job, one.before.memo), one.before.sequence
    return msgspec.structs.replace(
        record, state=State.SUSPENDED, sequence=before, changed_by=before
    )
