"""How the jobs of many steps stand, in a few requests for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored
from penstock.events.job import JobCancelled, JobCompleted, JobDead, JobDispatched
from penstock.events.job_event import JobEvent
from penstock.events.subjects import Subjects


class StepEnds(NamedTuple):
    """What single events show of jobs; those in neither must be read.

    Attributes:
        completed: the event of its completion, by job id. A completed job never lives again.
        living: ids of those that were dispatched and have not ended.
    """

    completed: dict[str, Stored]
    living: set[str]


async def completions(bus: Bus, subjects: Subjects, job_ids: Sequence[str]) -> dict[str, Stored]:
    """The events of those that completed, by job id. Raises BusError."""
    return await _last(bus, subjects, job_ids, JobCompleted)


async def of_jobs(
    bus: Bus,
    subjects: Subjects,
    job_ids: Sequence[str],
    completed: Mapping[str, Stored] = MappingProxyType({}),
) -> StepEnds:
    """Looks at all of them. Raises BusError.

    Args:
        job_ids: of the steps.
        completed: completions that were read before, by job id.
    """
    all_completed = {job_id: completed[job_id] for job_id in job_ids if job_id in completed}
    others = [job_id for job_id in job_ids if job_id not in all_completed]
    all_completed |= await _last(bus, subjects, others, JobCompleted)
    others = [job_id for job_id in others if job_id not in all_completed]
    living = set(await _last(bus, subjects, others, JobDispatched))
    for end in (JobDead, JobCancelled):
        living -= (await _last(bus, subjects, others, end)).keys()
    return StepEnds(all_completed, living)


async def _last(
    bus: Bus, subjects: Subjects, job_ids: Sequence[str], kind: type[JobEvent]
) -> dict[str, Stored]:
    if not job_ids:
        return {}
    names = {subjects.events("job", job_id, kind.__name__): job_id for job_id in job_ids}
    stored = await bus.last_of(subjects.events_stream, list(names))
    return {names[subject]: message for subject, message in stored.items()}
