"""Which ids are those of jobs: any key that may store events of jobs may invent others."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.bus.protocol import Bus
from penstock.events.job import JobCarried, JobDispatched
from penstock.events.subjects import Subjects

_BEGINNINGS = (JobDispatched.__name__, JobCarried.__name__)


async def dispatched(bus: Bus, subjects: Subjects, job_ids: Sequence[str]) -> list[str]:
    """Those of these ids of which the log holds a dispatch, or what stands for it; in their order.

    In one request for hundreds, so that thousands of invented ids cost next to nothing. Whether the
    job began so is left to who reads it.

    Raises:
        BusError
    """
    names = [subjects.events("job", job_id, name) for job_id in job_ids for name in _BEGINNINGS]
    stored = await bus.last_of(subjects.events_stream, names) if names else {}
    stored_ids = {subject.rsplit(".", 2)[-2] for subject in stored}
    return [job_id for job_id in job_ids if job_id in stored_ids]
