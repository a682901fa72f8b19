"""How the jobs of many steps stand, in a few requests for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.bus.protocol import Bus, Stored
from penstock.events.job import JobCancelled, JobCompleted, JobDead, JobDispatched
from penstock.events.subjects import Subjects


class StepEnds(NamedTuple):
    """What single events show of jobs; those in neither must be read.

    Attributes:
        completed: the event of its completion, by job id. A completed job never lives again.
        living: ids of those that were dispatched and have not ended.
    """

    completed: dict[str, Stored]
    living: set[str]


async def of_jobs(bus: Bus, subjects: Subjects, job_ids: Sequence[str]) -> StepEnds:
    """Looks at all of them. Raises BusError."""
    stream = subjects.events_stream

    async def last(ids: Sequence[str], name: str) -> dict[str, Stored]:
        names = {subjects.events("job", job_id, name): job_id for job_id in ids}
        stored = await bus.last_of(stream, list(names))
        return {names[subject]: message for subject, message in stored.items()}

    completed = await last(job_ids, JobCompleted.__name__)
    others = [job_id for job_id in job_ids if job_id not in completed]
    living: set[str] = set()
    if others:
        living |= (await last(others, JobDispatched.__name__)).keys()
        for end in (JobDead, JobCancelled):
            living -= (await last(others, end.__name__)).keys()
    return StepEnds(completed, living)
