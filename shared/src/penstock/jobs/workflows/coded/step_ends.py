"""How the jobs of many steps stand, in a few requests for all of them.

Only what single events prove is returned: a job that was dispatched, started and completed without
another event in between, or one without any end. What has more of a history, or an event that may
not follow, is to be read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored
from penstock.events.job import (
    JOB_EVENTS,
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobStarted,
)
from penstock.events.job_event import JobEvent
from penstock.events.subjects import Subjects
from penstock.jobs import lifecycle
from penstock.jobs.event_store import unbroken
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import JobRecord, State


class StepEnds(NamedTuple):
    """What single events prove of jobs; those in neither must be read.

    Attributes:
        completed: jobs that completed, by id. They never live again.
        living: those that were dispatched and have not ended, by id; as far as that was read.
    """

    completed: dict[str, JobRecord]
    living: dict[str, JobRecord]


async def completions(bus: Bus, subjects: Subjects, job_ids: Sequence[str]) -> dict[str, JobRecord]:
    """Those of these jobs that completed at their first attempt, by id. Raises BusError."""
    return (await _looked_at(bus, subjects, job_ids)).completed


async def of_jobs(
    bus: Bus,
    subjects: Subjects,
    job_ids: Sequence[str],
    completed: Mapping[str, JobRecord] = MappingProxyType({}),
) -> StepEnds:
    """Looks at all of them. Raises BusError.

    Args:
        job_ids: of the steps.
        completed: jobs of which that was proven before, by id.
    """
    proven = {job_id: completed[job_id] for job_id in job_ids if job_id in completed}
    others = [job_id for job_id in job_ids if job_id not in proven]
    looked_at = await _looked_at(bus, subjects, others)
    unended = [job_id for job_id in others if job_id in looked_at.living]
    ends = await last_events(bus, subjects, unended, (JobDead, JobCancelled))
    living = {job_id: looked_at.living[job_id] for job_id in unended if not ends[job_id]}
    return StepEnds(proven | looked_at.completed, living)


async def _looked_at(bus: Bus, subjects: Subjects, job_ids: Sequence[str]) -> StepEnds:
    """Those that completed, and those that were dispatched and have no completion."""
    completed: dict[str, JobRecord] = {}
    living: dict[str, JobRecord] = {}
    last = await last_events(bus, subjects, job_ids, (JobDispatched, JobStarted, JobCompleted))
    for job_id, messages in last.items():
        tree = subjects.job(job_id)
        is_completed = any(_name(stored) == JobCompleted.__name__ for stored in messages)
        if is_completed and unbroken.is_whole(messages, tree):
            record = _folded(messages)
            if record is not None and record.state is State.COMPLETED:
                completed[job_id] = record
        elif not is_completed and messages and unbroken.is_first(messages[0], tree):
            record = _folded(messages[:1])
            if record is not None:
                living[job_id] = record
    return StepEnds(completed, living)


async def last_events(
    bus: Bus, subjects: Subjects, job_ids: Sequence[str], kinds: Sequence[type[JobEvent]]
) -> dict[str, list[Stored]]:
    """The last event of each of these kinds, oldest first, by job id. Raises BusError."""
    by_job: dict[str, list[Stored]] = {job_id: [] for job_id in job_ids}
    if not by_job:
        return by_job
    names = [subjects.events("job", job_id, kind.__name__) for job_id in by_job for kind in kinds]
    stored = await bus.last_of(subjects.events_stream, names)
    for message in sorted(stored.values(), key=lambda one: one.sequence):
        by_job[message.subject.split(".")[-2]].append(message)
    return by_job


def _folded(messages: Sequence[Stored]) -> JobRecord | None:
    return lifecycle.fold((one.sequence, read_event(one, JOB_EVENTS)) for one in messages)


def _name(stored: Stored) -> str:
    return stored.subject.rpartition(".")[2]
