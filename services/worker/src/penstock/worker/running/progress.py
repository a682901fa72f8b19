"""Recording how far a running job is."""

from __future__ import annotations

import asyncio

from penstock.bus.protocol import Bus, BusError
from penstock.events.job import JobProgressed
from penstock.jobs.job_log import JobLog
from penstock.worker.claiming.claimed_job import ClaimedJob

_SHARE = 1 / 60


async def record_progress(bus: Bus, joblog: JobLog, job: ClaimedJob) -> None:
    """Records how far a job is: each second at first, then ever less often.

    A sixtieth of its running time lies between two events, so that a job of a minute has 60 at
    most, one of an hour 300, one of a day 500.

    Args:
        bus: a connected bus.
        joblog: the events of jobs.
        job: that runs; its sequence moves with the event.
    """
    progress, running_seconds = job.live.progress, job.live.running_seconds()
    if progress is None or progress == job.recorded_progress or job.lost:
        return
    if running_seconds < job.progress_due:
        return
    job.progress_due = running_seconds * (1 + _SHARE)
    done, total = job.recorded_progress = progress
    event = JobProgressed(job_id=job.id, source=joblog.source, done=done, total=total)
    job.appending = asyncio.ensure_future(bus.append(joblog.outgoing(event, job.sequence)))
    try:
        job.sequence = await job.appending
    except BusError:  # whether the job is still this worker's is looked up anyway
        job.recorded_progress = None
