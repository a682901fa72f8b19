"""Coded workflows by state, function, and how long they have waited.

Those that changed last are found as jobs are. Those that wait longest lie far back in a busy log:
they are looked for by the events that suspend a workflow, the last of each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

import msgspec

from penstock.bus import bounded, lookback
from penstock.bus.protocol import Bus, Stored
from penstock.events.job import JOB_EVENTS, JobCarried, JobStarted
from penstock.events.subjects import Subjects
from penstock.events.workflow import (
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.jobs import derived_ids
from penstock.jobs.errors import JobsError
from penstock.jobs.event_store.dispatched import dispatched
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.reading.job_list import JobQuery, newest_jobs
from penstock.jobs.reading.last_event import proves_an_end
from penstock.jobs.workflows.workflow_view import WorkflowView, workflow_view

MOST_LOOKED_AT = 20_000
"""Workflows that may still wait: of each the last event is looked at."""
_AT_ONCE = 200
_SUSPENDING = (WorkflowAdvanced.__name__, WorkflowBlocked.__name__, JobCarried.__name__)
_STARTED = f".{JobStarted.__name__}"
_PAUSED, _RESUMED = WorkflowPaused.__name__, WorkflowResumed.__name__

Look = Callable[[str], Awaitable[JobView]]


class WorkflowQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which workflows are listed; what is None, empty or False matches any.

    Attributes:
        state: as they are now.
        function: registered name.
        is_blocked: their code does not fit what they recorded.
        is_paused: they do not go on until they are resumed.
        waiting_since: suspended ones that last went on before this time.
        with_parts: also steps of other workflows and graphs, and jobs of batches; else these are
            counted.
    """

    state: State | None = None
    function: str = ""
    is_blocked: bool = False
    is_paused: bool = False
    waiting_since: datetime | None = None
    with_parts: bool = True

    def fits(self, view: WorkflowView) -> bool:
        since = self.waiting_since
        return (
            self.state in {None, view.state}
            and self.function in {"", view.job.function}
            and (not self.is_blocked or bool(view.blocked and view.state is State.SUSPENDED))
            and (not self.is_paused or view.paused_at is not None)
            and (since is None or (view.waiting_since is not None and view.waiting_since < since))
        )

    def holds(self, workflow_id: str) -> bool:
        """Whether one that fits is listed."""
        return self.with_parts or not derived_ids.is_part(workflow_id)


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkflowList:
    """Workflows that fit.

    Attributes:
        workflows: in the order of the list.
        cut_off: further ones may fit, which were not looked at.
        left_out: of those that were looked at, how many fit, but are parts of others.
    """

    workflows: tuple[WorkflowView, ...] = ()
    cut_off: bool = False
    left_out: int = 0

    def __iter__(self) -> Iterator[WorkflowView]:
        return iter(self.workflows)

    def __len__(self) -> int:
        return len(self.workflows)


async def newest(bus: Bus, subjects: Subjects, wanted: WorkflowQuery, limit: int) -> WorkflowList:
    """Those that changed last, first. Raises BusError."""
    query = JobQuery(
        matching=JobFilter(function=wanted.function),
        state=State.SUSPENDED if wanted.is_blocked else wanted.state,
        workflows_only=True,
        blocked_only=wanted.is_blocked,
        with_parts=wanted.with_parts,
    )
    jobs = await newest_jobs(bus, subjects, query, limit)
    return WorkflowList(
        workflows=tuple(workflow_view(job) for job in jobs),
        cut_off=jobs.cut_off,
        left_out=jobs.left_out,
    )


async def longest_waiting(
    bus: Bus, subjects: Subjects, wanted: WorkflowQuery, look: Look, limit: int
) -> WorkflowList:
    """Suspended ones, those first that wait longest.

    Args:
        look: reads a job.

    Raises:
        BusError
    """
    suspended_at: dict[str, datetime] = {}
    async for workflow_id, at in _suspended(bus, subjects):
        suspended_at[workflow_id] = max(at, suspended_at.get(workflow_id, at))
    by_time = sorted(suspended_at, key=lambda workflow_id: suspended_at[workflow_id])
    waiting = await dispatched(bus, subjects, by_time)
    fitting: list[WorkflowView] = []
    left_out = 0

    async def read(workflow_id: str) -> WorkflowView | None:
        last = await bus.last(subjects.events_stream, subjects.job(workflow_id))
        if last is None or last.subject.endswith(_STARTED):
            return None
        is_over = await proves_an_end(bus, subjects, last)
        return None if is_over else await _view(look, workflow_id)

    for some in _batches(waiting[:MOST_LOOKED_AT], _AT_ONCE):
        views = await bounded.gather(read, some, _AT_ONCE)
        matching = [view for view in views if view is not None and wanted.fits(view)]
        fitting += [view for view in matching if wanted.holds(view.id)]
        left_out += sum(not wanted.holds(view.id) for view in matching)
        if len(fitting) >= limit:
            break
    fitting.sort(key=lambda view: view.waiting_since or view.job.dispatched_at)
    return WorkflowList(
        workflows=tuple(fitting[:limit]),
        cut_off=len(fitting) < limit and len(waiting) > MOST_LOOKED_AT,
        left_out=left_out,
    )


async def paused(
    bus: Bus, subjects: Subjects, wanted: WorkflowQuery, look: Look, limit: int
) -> WorkflowList:
    """Those that are paused, the latest first, however long ago that was.

    Args:
        look: reads a job.

    Raises:
        BusError
    """
    stream = subjects.events_stream
    events: dict[str, Stored] = {}
    for name in (_PAUSED, _RESUMED, JobCarried.__name__):
        for stored in await lookback.latest(bus, stream, subjects.events("job", "*", name)):
            workflow_id = stored.subject.split(".")[-2]
            before = events.get(workflow_id)
            if before is None or before.sequence < stored.sequence:
                events[workflow_id] = stored
    candidates = sorted(filter(_may_be_paused, events.values()), key=lambda one: -one.sequence)
    names = [stored.subject.split(".")[-2] for stored in candidates]
    ids = await dispatched(bus, subjects, names)
    fitting: list[WorkflowView] = []
    left_out = 0
    for some in _batches(ids[:MOST_LOOKED_AT], _AT_ONCE):
        views = await bounded.gather(lambda one: _view(look, one), some, _AT_ONCE)
        matching = [view for view in views if view is not None and wanted.fits(view)]
        fitting += [view for view in matching if wanted.holds(view.id)]
        left_out += sum(not wanted.holds(view.id) for view in matching)
        if len(fitting) >= limit:
            break
    return WorkflowList(
        workflows=tuple(fitting[:limit]),
        cut_off=len(fitting) < limit and len(ids) > MOST_LOOKED_AT,
        left_out=left_out,
    )


def _may_be_paused(stored: Stored) -> bool:
    event = read_event(stored, JOB_EVENTS)
    if isinstance(event, JobCarried):
        return event.paused_at is not None
    return not isinstance(event, WorkflowResumed)  # one that cannot be read changes nothing


async def _view(look: Look, workflow_id: str) -> WorkflowView | None:
    try:
        return workflow_view(await look(workflow_id))
    except JobsError:
        return None


async def _suspended(bus: Bus, subjects: Subjects) -> AsyncIterator[tuple[str, datetime]]:
    """Workflows that were suspended some time, and when last."""
    for name in _SUSPENDING:
        for stored in await lookback.latest(
            bus, subjects.events_stream, subjects.events("job", "*", name)
        ):
            at = _suspended_at(stored) if name == JobCarried.__name__ else stored.at
            if at is not None:
                yield stored.subject.split(".")[-2], at


def _suspended_at(stored: Stored) -> datetime | None:
    """When a workflow was suspended whose earlier events left the log; None for other jobs."""
    event = read_event(stored, JOB_EVENTS)
    if not isinstance(event, JobCarried) or event.workflow is None:
        return None
    if event.workflow.following:  # which other events hold
        return event.started_at or stored.at
    return event.workflow.entries[-1].now if event.workflow.entries else stored.at


def _batches(ids: Iterable[str], size: int) -> Iterator[Sequence[str]]:
    remaining = iter(ids)
    while some := list(islice(remaining, size)):
        yield some
