"""Reading jobs, as a part of the client."""

from __future__ import annotations

from collections.abc import AsyncIterator

from penstock.bus.protocol import Bus
from penstock.events.subjects import Subjects
from penstock.jobs.job_log import JobLog
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.reading.job_logs import AttemptLines, JobLogs


class Jobs:
    """Lists of jobs, and what they wrote: ``client.jobs``.

    Args:
        log: the events of jobs.
        ring: keys that open encrypted results and lines.
    """

    def __init__(self, bus: Bus, subjects: Subjects, log: JobLog, ring: KeyRing) -> None:
        self._logs = JobLogs(bus, subjects, log, ring)

    async def logs(self, job_id: str, attempt: int = 0) -> list[AttemptLines]:
        """What a job wrote, as far as it is stored; see :meth:`JobLogs.read`."""
        return await self._logs.read(job_id, attempt)

    def follow_logs(self, job_id: str, attempt: int = 0) -> AsyncIterator[AttemptLines]:
        """What a job wrote and writes, until it has ended; see :meth:`JobLogs.follow`."""
        return self._logs.follow(job_id, attempt)
