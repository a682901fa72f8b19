"""Whether a running job is still this worker's: its own events decide, and nothing else."""

from __future__ import annotations

import logging

from penstock.bus.protocol import Bus
from penstock.jobs.lifecycle import JobRecord, State
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.job_log import JobLog, Unreadable

log = logging.getLogger("penstock.worker")


async def still_ours(bus: Bus, joblog: JobLog, job: ClaimedJob) -> tuple[bool, JobRecord | None]:
    """False when the job was cancelled, taken over or is gone; then the record that says so.

    Raises:
        BusError: it cannot be told now.
    """
    subjects = joblog.subjects
    last = await bus.last(subjects.events_stream, subjects.job(job.id))
    if last is not None and last.sequence == job.sequence:
        return True, None
    try:
        record, _ = await joblog.look_up(job.id)
    except Unreadable as error:
        log.error("%s", error)
        return True, None
    if record is None or record.token != job.token or record.state is not State.RUNNING:
        return False, record
    job.sequence = max(job.sequence, record.sequence)  # our own progress, whose answer was lost
    return True, record
