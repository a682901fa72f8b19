"""Ends a running job whose worker uses more memory, or that uses more CPU time, than allowed."""

from __future__ import annotations

import logging

from penstock.config import Profile
from penstock.events.job import JobError
from penstock.jobs.errors import LimitExceeded
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.core.outcome import cpu_limit, memory_limit
from penstock.worker.running.ending import Ending
from penstock.worker.running.memory_peak import resident_bytes
from penstock.worker.running.running_jobs import RunningJobs
from penstock.worker.state import WorkerState

log = logging.getLogger("penstock.worker")


class JobLimits:
    """Looked at four times a second; costs nothing for a pool without such limits.

    Memory is that of the whole process: where several jobs run in it, the one begun last is ended,
    and the worker ends after the others. While C code holds the interpreter no thread of this
    process looks: then the executor kills it (`penstock.executor.recovering.memory_limits`).

    Args:
        profile: of the pool.
        running: the jobs that run.
        ending: ends one.
        state: the worker takes no more jobs after one that used too much memory.
    """

    def __init__(
        self, profile: Profile, running: RunningJobs, ending: Ending, state: WorkerState
    ) -> None:
        self._memory_bytes = profile.limit_job_memory_bytes
        self._cpu_seconds = profile.limit_job_cpu_seconds
        self._running, self._ending, self._state = running, ending, state

    def check(self) -> None:
        """Ends what is over a limit."""
        jobs = self._running.jobs
        if not jobs:
            return
        if self._cpu_seconds:
            for job in jobs:
                self._check_cpu(job)
        if self._memory_bytes:
            self._check_memory(jobs[-1])

    def _check_memory(self, newest: ClaimedJob) -> None:
        used = resident_bytes()
        if used <= self._memory_bytes:
            return
        error = memory_limit(used, self._memory_bytes)
        self._state.stop(f"limit: a job's worker {error.message}")  # what it holds stays resident
        if newest.live.is_heir and newest.live.first_memory_bytes > self._memory_bytes:
            self._running.surrender(newest, "an earlier job left too much memory in use")
        else:
            self._end(newest, error, "its worker used too much memory")

    def _check_cpu(self, job: ClaimedJob) -> None:
        used = job.live.cpu_seconds()
        if used > self._cpu_seconds:
            self._end(job, cpu_limit(used, self._cpu_seconds), "it used too much CPU time")

    def _end(self, job: ClaimedJob, error: JobError, why: str) -> None:
        if job.live.exceeded is None:
            job.live.exceeded = error
            log.warning("job %s is ended: %s: %s", job.id, error.kind, error.message)
            self._ending.end(job, LimitExceeded, why)
