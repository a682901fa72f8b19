"""Several jobs at a time in one process: a thread for each plain function, one event loop for all
asynchronous ones.

Jobs begin in the order in which they were claimed. Which may be here together is decided before
they are claimed (:mod:`penstock.worker.core.company`).
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque

from penstock.runtime.workers.claims_file import Claimed
from penstock.runtime.workers.pulse import Pulse
from penstock.worker.claiming.claimed_job import ClaimDeadline, ClaimedJob
from penstock.worker.core.company import Company
from penstock.worker.running.attempt import Functions
from penstock.worker.running.finished import Finished
from penstock.worker.running.job_loop import JobLoop
from penstock.worker.running.job_threads import JobThreads
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.runner import run_in_thread
from penstock.worker.running.running_jobs import RunningJobs, ThreadRun


class SlotRunner:
    """At most ``slots`` jobs at a time.

    Args:
        functions: calls the functions of jobs.
        running: where the running jobs are to be found.
        claimed: where the executor reads which jobs ran, once this process is dead.
        claim_deadline: no job is begun after it.
        pulse: shows the executor which job was begun last; None without an executor.
    """

    def __init__(
        self,
        functions: Functions,
        running: RunningJobs,
        *,
        slots: int,
        claimed: Claimed,
        claim_deadline: ClaimDeadline | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self.running, self.finished = running, Finished()
        self._functions, self._slots, self._claimed = functions, slots, claimed
        self._claim_deadline, self._pulse = claim_deadline, pulse
        self._guard = threading.Lock()  # of what follows
        self._todo: deque[ClaimedJob] = deque()
        self._begun: set[ClaimedJob] = set()
        self._suspects: set[ClaimedJob] = set()
        """Those of both that allow few others of them."""
        self._threads = JobThreads(self._run_here, running)
        self._job_loop = JobLoop(functions, running, self._ended_in_loop, slots)

    # --- called in the worker's loop --------------------------------------------------------------
    def add(self, jobs: list[ClaimedJob]) -> None:
        with self._guard:
            self._todo.extend(jobs)
            self._suspects.update(job for job in jobs if job.most_beside)
        self._begin_next()

    def take_back(self) -> list[ClaimedJob]:
        with self._guard:
            return self._take(list(self._todo))

    def drop(self, job: ClaimedJob) -> bool:
        with self._guard:
            return bool(self._take([job])) if job in self._todo else False

    def company(self) -> Company:
        with self._guard:
            return Company(job.most_beside for job in self._suspects)

    @property
    def alive(self) -> bool:
        return not self._threads.broken

    @property
    def holder(self) -> tuple[ClaimedJob, float] | None:
        return self._job_loop.holder

    def stop(self) -> None:
        self._threads.stop()
        self._job_loop.stop()

    # --- in any thread ----------------------------------------------------------------------------
    def _begin_next(self, keeps_plain: bool = False) -> ClaimedJob | None:
        """Begins as many jobs as there is room for.

        Args:
            keeps_plain: the calling thread runs the first plain function itself.

        Returns:
            The job for the calling thread.
        """
        kept: ClaimedJob | None = None
        while (job := self._next()) is not None:
            if job.kind.is_async:
                self._show(job)
                self._job_loop.start(job)
            elif keeps_plain and kept is None:
                kept = job
            else:
                self._threads.start(job)
        return kept

    def _next(self) -> ClaimedJob | None:
        """The next job, which occupies its slot from now on; None while no slot is free."""
        with self._guard:
            if not self._todo or len(self._begun) >= self._slots:
                return None
            if self._claim_deadline is not None and self._claim_deadline.has_passed():
                return None
            job = self._todo.popleft()
            self._begun.add(job)
            return job

    def _take(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        for job in jobs:
            self._todo.remove(job)
            self._suspects.discard(job)
        return jobs

    def _run_here(self, job: ClaimedJob, run: ThreadRun) -> ClaimedJob | None:
        """Runs a plain function in one of the threads; returns the next job for it."""
        self._show(job)
        # a context of its own: what a job sets there is not the next one's
        outcome = contextvars.Context().run(
            run_in_thread, job, run, self.running, self._functions, time.monotonic()
        )
        self._ended(job, outcome)
        return self._begin_next(keeps_plain=True)

    def _ended_in_loop(self, job: ClaimedJob, outcome: Outcome) -> None:
        self._ended(job, outcome)
        self._begin_next()

    def _show(self, job: ClaimedJob) -> None:
        """Leaves a sign for the executor, in case this process dies."""
        self._claimed.begin(job.delivery.sequence)
        if self._pulse is not None:
            self._pulse.begin(job.id, job.delivery.ack_subject)

    def _ended(self, job: ClaimedJob, outcome: Outcome) -> None:
        self._claimed.end(job.delivery.sequence)
        with self._guard:
            self._begun.discard(job)
            self._suspects.discard(job)
        self.finished.put(FinishedJob(job, outcome))
        self.finished.announce()
