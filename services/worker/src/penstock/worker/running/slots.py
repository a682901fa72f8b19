"""Several jobs at a time in one process: a thread for each plain function, one event loop for all
asynchronous ones.

Jobs begin in the order in which they were claimed. One that lost a worker together with others
begins only where few others run, so that the next loss shows which job is to blame
(:mod:`penstock.jobs.running.worker_loss`).
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections import deque

from penstock.runtime.workers.claims_file import Claimed
from penstock.runtime.workers.pulse import Pulse
from penstock.worker.claiming.claimed_job import ClaimDeadline, ClaimedJob
from penstock.worker.running.attempt import Functions
from penstock.worker.running.finished import Finished
from penstock.worker.running.job_loop import JobLoop
from penstock.worker.running.job_threads import JobThreads
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.runner import run_in_thread
from penstock.worker.running.running_jobs import RunningJobs, ThreadRun

ROOM_SECONDS = 30.0
"""A job that needs room waits so long for the others here to end; then it begins beside those that
do not need it themselves, or else goes back to its queue."""


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
        self._careful: set[ClaimedJob] = set()
        self._waits_since: dict[ClaimedJob, float] = {}
        self._threads = JobThreads(self._run_here, running)
        self._job_loop = JobLoop(functions, running, self._ended_in_loop, slots)

    # --- called in the worker's loop --------------------------------------------------------------
    def add(self, jobs: list[ClaimedJob]) -> None:
        now = time.monotonic()
        with self._guard:
            self._todo.extend(jobs)
            self._waits_since.update((job, now) for job in jobs if job.most_beside)
        self._begin_next()

    def take_back(self) -> list[ClaimedJob]:
        with self._guard:
            return self._take(list(self._todo))

    def give_up_waiting(self) -> list[ClaimedJob]:
        self._begin_next()  # one that has waited for room long enough may begin without it
        now = time.monotonic()
        with self._guard:
            if not self._is_held_up():
                return []
            return self._take([job for job in self._todo if not self._may_wait(job, now)])

    def drop(self, job: ClaimedJob) -> bool:
        with self._guard:
            return bool(self._take([job])) if job in self._todo else False

    @property
    def is_held_up(self) -> bool:
        with self._guard:
            return self._is_held_up()

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
        """The next job, which occupies its slot from now on; None while there is no room for it."""
        with self._guard:
            if not self._todo or len(self._begun) >= self._slots:
                return None
            if self._claim_deadline is not None and self._claim_deadline.has_passed():
                return None
            job = self._todo[0]
            if not self._has_room(job):
                return None
            self._begun.add(self._todo.popleft())
            if job.most_beside:
                self._careful.add(job)
                self._waits_since.pop(job, None)
            return job

    def _is_held_up(self) -> bool:
        if len(self._begun) >= self._slots:
            return False
        return self._is_full() or (bool(self._todo) and not self._has_room(self._todo[0]))

    def _is_full(self) -> bool:
        """Whether a job that runs allows no further one beside it."""
        limits = (job.most_beside for job in self._careful)
        return len(self._begun) >= min(limits, default=self._slots)

    def _has_room(self, job: ClaimedJob) -> bool:
        if self._is_full():
            return False
        if not job.most_beside:
            return True
        is_patient = self._may_wait(job, time.monotonic())
        return len(self._begun if is_patient else self._careful) < job.most_beside

    def _may_wait(self, job: ClaimedJob, now: float) -> bool:
        """Whether the job needs room, and has not waited for it too long."""
        return now - self._waits_since.get(job, float("-inf")) < ROOM_SECONDS

    def _take(self, jobs: list[ClaimedJob]) -> list[ClaimedJob]:
        for job in jobs:
            self._todo.remove(job)
            self._waits_since.pop(job, None)
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
            self._careful.discard(job)
        self.finished.put(FinishedJob(job, outcome))
        self.finished.announce()
