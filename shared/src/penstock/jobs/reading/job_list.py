"""Jobs by state, function, queue, tag, batch, worker and time, those that changed last first.

They are folded from the event log, read backwards from its end as far as the limit asks for. There
is no index: what lies further back than ``lookback.DEEPEST_SPAN`` messages is not looked at, and a
list that was cut off so says how far it reaches.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import overload

import msgspec

from penstock.bus import lookback
from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCarried,
    JobDead,
    JobDispatched,
    JobRecovered,
    JobStarted,
)
from penstock.events.subjects import Subjects
from penstock.events.workflow import MemoCarried
from penstock.jobs import derived_ids, job_view, lifecycle
from penstock.jobs.errors import JobsError
from penstock.jobs.event_store import unbroken
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_filter import EVERY_JOB, JobFilter
from penstock.jobs.job_log import JobLog, trace_of
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord, State, fold
from penstock.jobs.payloads.encryption import KeyRing

DEFAULT_LIMIT = 100
MOST_READ = 2_000
"""Jobs of a list whose history is read one by one, since it begins further back."""
_READ_AT_ONCE = 20


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs are listed; None is any.

    Attributes:
        matching: by queue, function, tag and batch.
        state: as they are now.
        worker: that runs them or ran them last.
        since: changed at or after this time.
        until: changed last before this time.
        workflows_only: of these, only coded workflows.
        blocked_only: of these, only suspended ones whose code does not fit what they recorded.
        with_parts: also steps of workflows and graphs, and jobs of batches; else these are counted.
    """

    matching: JobFilter = EVERY_JOB
    state: State | None = None
    worker: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    workflows_only: bool = False
    blocked_only: bool = False
    with_parts: bool = True

    def fits(self, record: JobRecord) -> bool:
        return (
            self.state in {None, record.state}
            and self.worker in {None, record.worker}
            and self.matching.fits(record)
            and (not self.workflows_only or record.is_workflow)
            and (not self.blocked_only or bool(record.workflow and record.workflow.blocked))
        )

    def may_fit(self, job_id: str, history: History) -> bool:
        """Whether a job can fit, given only its latest events: spares reading most of the rest."""
        latest = [event for _, event in history if isinstance(event, Event)]
        member = derived_ids.member(job_id)
        matching, batch = self.matching, member.batch if member else ""
        queues = {getattr(event, "queue", "") for event in latest} - {""}
        functions = {getattr(event, "function", "") for event in latest} - {""}
        workers = {event.worker for event in latest if isinstance(event, JobStarted)}
        return (
            (self.state is None or _may_be(self.state, latest))
            and (not workers or self.worker is None or self.worker in workers)
            and matching.batch in {"", batch}
            and (not functions or matching.function in {"", *functions})
            and (not queues or not matching.queues or bool(queues & {*matching.queues}))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class JobList(Sequence[JobView]):
    """Jobs that fit, those that changed last first: a sequence, with ``len`` and indices.

    Attributes:
        jobs: the same as a tuple.
        cut_off: further jobs may fit: the event log was read to ``reaches_back_to``, not further.
            Never set where the limit was reached.
        reaches_back_to: the time of the oldest message that was read; None where nothing was cut.
        left_out: of those that were looked at, how many fit, but are parts of others.
    """

    jobs: tuple[JobView, ...]
    cut_off: bool = False
    reaches_back_to: datetime | None = None
    left_out: int = 0

    @overload
    def __getitem__(self, index: int) -> JobView: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[JobView, ...]: ...

    def __getitem__(self, index: int | slice) -> JobView | tuple[JobView, ...]:
        return self.jobs[index]

    def __iter__(self) -> Iterator[JobView]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


History = Sequence[tuple[int, Event | UnknownEvent]]


async def newest_jobs(
    bus: Bus,
    subjects: Subjects,
    wanted: JobQuery,
    limit: int = DEFAULT_LIMIT,
    ring: KeyRing | None = None,
) -> JobList:
    """At most ``limit`` jobs, those that changed last first.

    Args:
        ring: keys that open encrypted results.
    """
    reader = _Reader(JobLog(bus, subjects), wanted, ring or KeyRing())
    fitting: list[JobView] = []
    left_out, reaches_back_to, is_whole, is_beyond = 0, None, True, False
    everything = subjects.events(noun="job")
    async for messages, is_whole in lookback.back(bus, subjects.events_stream, everything):
        fitting, left_out = [], 0
        reaches_back_to = messages[0].at if messages else None
        async for view in reader.views(_in_time(messages, wanted), is_whole):
            if not wanted.fits(view.record):
                continue
            if not wanted.with_parts and derived_ids.is_part(view.id):
                left_out += 1
                continue
            fitting.append(view)
            if len(fitting) == limit:
                return JobList(jobs=tuple(fitting), left_out=left_out)
        if wanted.since and reaches_back_to and reaches_back_to < wanted.since:
            is_beyond = True
            break
    cut_off = not (is_whole or is_beyond) or reader.gave_up
    return JobList(
        jobs=tuple(fitting),
        cut_off=cut_off,
        reaches_back_to=reaches_back_to if cut_off else None,
        left_out=left_out,
    )


class _Reader:
    """Folds recent events to jobs; reads a job whose first events are not among them, once.

    Attributes:
        gave_up: more jobs were to be read than are.
    """

    def __init__(self, log: JobLog, wanted: JobQuery, ring: KeyRing) -> None:
        self._log, self._wanted, self._ring = log, wanted, ring
        self._read: dict[str, JobView | None] = {}
        self.gave_up = False

    async def views(self, messages: Sequence[Stored], is_whole: bool) -> AsyncIterator[JobView]:
        """The jobs of messages, the last changed first.

        Args:
            messages: events of jobs, oldest first.
            is_whole: the log holds no events before these.
        """
        by_job = list(reversed(_by_job(messages).items()))
        for start in range(0, len(by_job), _READ_AT_ONCE):
            some = by_job[start : start + _READ_AT_ONCE]
            for view in await asyncio.gather(
                *(self._view(job_id, stored, is_whole) for job_id, stored in some)
            ):
                if view is not None:
                    yield view

    async def _view(self, job_id: str, stored: list[Stored], is_whole: bool) -> JobView | None:
        """The job; None where its first events left the log, so that its state is unknown."""
        history = tuple((one.sequence, read_event(one, JOB_EVENTS)) for one in stored)
        begins = isinstance(history[0][1], JobCarried) or (
            isinstance(history[0][1], JobDispatched)
            and unbroken.is_first(stored[0], self._log.subjects.job(job_id))
        )
        if is_whole or begins:
            record = fold(history)
            parents = (trace_of(one.headers).get("traceparent", "") for one in stored)
            parent = next(filter(None, parents), "")
            if record is None:
                return None
            return JobView(record=record, events=history, ring=self._ring, traceparent=parent)
        if not self._wanted.may_fit(job_id, history):
            return None
        if job_id not in self._read:
            if len(self._read) >= MOST_READ:
                self.gave_up = True
                return None
            try:
                self._read[job_id] = await job_view.read(self._log, job_id, self._ring)
            except JobsError:
                self._read[job_id] = None
        return self._read[job_id]


def _may_be(state: State, latest: Sequence[Event]) -> bool:
    """Whether a job can be in a state, given its latest events, which may be such as do not count.

    A start, a death and a cancel have ended what was before.
    """
    decides = any(isinstance(event, JobStarted | JobDead | JobCancelled) for event in latest)
    may_be_as_before = not state.ended and not decides
    return may_be_as_before or any(leads_to(event, state) for event in latest)


def leads_to(event: Event | UnknownEvent, state: State) -> bool:
    """Whether a job may be in ``state`` after ``event``."""
    if isinstance(event, JobCarried):
        return event.state == state
    if isinstance(event, MemoCarried):
        return True
    if isinstance(event, JobRecovered) and state is State.RETRYING:
        return event.due_at is not None
    edge = lifecycle.edge_of(event)
    if edge is None:
        return False
    return edge.target is state or (edge.target is None and state in edge.sources)


def _in_time(messages: Sequence[Stored], wanted: JobQuery) -> Sequence[Stored]:
    """The events of jobs whose last one is within the time asked for."""
    if wanted.since is None and wanted.until is None:
        return messages
    changed_at = {_job_id(stored): stored.at for stored in messages}
    fitting = {
        job_id
        for job_id, at in changed_at.items()
        if (wanted.since is None or at >= wanted.since)
        and (wanted.until is None or at < wanted.until)
    }
    return [stored for stored in messages if _job_id(stored) in fitting]


def _by_job(messages: Sequence[Stored]) -> dict[str, list[Stored]]:
    """The events of each job; the job of the latest event comes last."""
    by_job: dict[str, list[Stored]] = {}
    for stored in messages:
        job_id = _job_id(stored)
        events = by_job.pop(job_id, [])
        events.append(stored)
        by_job[job_id] = events
    return by_job


def _job_id(stored: Stored) -> str:
    return stored.subject.split(".")[-2]
