"""The job thread: runs the author's functions one after another, while the loop keeps the claims.

The loop that talks to the broker stays in the main thread: a job that computes for an hour does not
keep its claim from being extended, and one that blocks for ever can still be seen and ended.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import Protocol

import msgspec

from penstock.jobs.errors import Interruption, Verdict
from penstock.runtime.workers.pulse import Pulse
from penstock.worker.claiming.claimed_job import ClaimDeadline, ClaimedJob
from penstock.worker.core.company import Company
from penstock.worker.core.outcome import error_of
from penstock.worker.running.attempt import Functions, failure, span
from penstock.worker.running.finished import Finished
from penstock.worker.running.memory_peak import MemoryPeak
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.running_jobs import RunningJobs, ThreadRun

_ANNOUNCE_SECONDS = 0.005
"""Finished jobs are announced together: waking the loop costs as much as a no-op job."""
_LAPSED_POLL_SECONDS = 0.005


class JobRunner(Protocol):
    """What runs a worker's jobs: :class:`Runner`, one at a time, or
    :class:`penstock.worker.running.slots.SlotRunner`, several. Used in the worker's loop.

    Attributes:
        running: the jobs that run now.
        finished: those that have ended.
    """

    running: RunningJobs
    finished: Finished

    def add(self, jobs: list[ClaimedJob]) -> None:
        """Takes jobs; each is begun as soon as there is a place for it."""
        ...

    def take_back(self) -> list[ClaimedJob]:
        """The jobs not begun, which now never will be."""
        ...

    def drop(self, job: ClaimedJob) -> bool:
        """Takes back one job; False when it has begun."""
        ...

    def company(self) -> Company:
        """The suspects here; none where each job runs alone."""
        ...

    @property
    def alive(self) -> bool:
        """Whether its threads still run jobs."""
        ...

    @property
    def holder(self) -> tuple[ClaimedJob, float] | None:
        """The asynchronous job whose code keeps the others waiting, and since when (monotonic
        seconds); None while they all wait."""
        ...

    def stop(self) -> None:
        """Ends its threads, once they have nothing to do."""
        ...


class Runner:
    """One thread, one job at a time.

    Args:
        functions: calls the functions of jobs.
        running: where the running job is to be found.
        claim_deadline: no job is begun after it.
        pulse: shows the executor which job runs; None without an executor.
    """

    def __init__(
        self,
        functions: Functions,
        running: RunningJobs,
        *,
        claim_deadline: ClaimDeadline | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self.running, self.finished = running, Finished()
        self._functions, self._run_here = functions, ThreadRun(running)
        self._claim_deadline, self._pulse = claim_deadline, pulse
        self._todo: deque[ClaimedJob] = deque()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._memory = MemoryPeak()
        self._thread = threading.Thread(target=self._forever, name="job", daemon=True)
        self._thread.start()

    # --- called in the loop -----------------------------------------------------------------------
    def add(self, jobs: list[ClaimedJob]) -> None:
        self._todo.extend(jobs)
        self._wake.put(True)

    def take_back(self) -> list[ClaimedJob]:
        taken = []
        while self._todo:
            try:
                taken.append(self._todo.pop())
            except IndexError:
                break
        taken.reverse()  # they are offered again in this order, the oldest first
        return taken

    def drop(self, job: ClaimedJob) -> bool:
        try:
            self._todo.remove(job)
        except ValueError:
            return False
        return True

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def company(self) -> Company:
        return Company(runs_one=True)

    @property
    def holder(self) -> tuple[ClaimedJob, float] | None:
        return None

    def stop(self) -> None:
        self._wake.put(False)

    # --- the thread -------------------------------------------------------------------------------
    def _forever(self) -> None:
        try:
            self._run_all()
        finally:
            self._memory.close()

    def _run_all(self) -> None:
        while self._wake.get():
            self._run_here.resume()
            announced_at = time.monotonic()
            while self._todo:
                while self._claim_deadline is not None and self._claim_deadline.has_passed():
                    time.sleep(_LAPSED_POLL_SECONDS)
                try:
                    job = self._todo.popleft()
                except IndexError:  # taken back
                    break
                self.finished.put(FinishedJob(job, self._run(job)))
                now = time.monotonic()
                if not self._todo or now - announced_at > _ANNOUNCE_SECONDS:
                    announced_at = now
                    self.finished.announce()

    def _run(self, job: ClaimedJob) -> Outcome:
        begun_at = time.monotonic()
        self._memory.begin(begun_at)
        if self._pulse is not None:
            self._pulse.begin(job.id, job.delivery.ack_subject)
        outcome = run_in_thread(job, self._run_here, self.running, self._functions, begun_at)
        peak = self._memory.end(begun_at, begun_at + outcome.run_seconds)
        return msgspec.structs.replace(outcome, peak_memory_bytes=peak) if peak else outcome


def run_in_thread(
    job: ClaimedJob, run: ThreadRun, running: RunningJobs, functions: Functions, begun_at: float
) -> Outcome:
    """Runs one attempt here, in the thread of ``run``; nothing that it raises is left behind."""
    cpu_began = run.cpu_seconds
    with functions.writing(job):
        outcome = _attempt(job, run, functions, begun_at)
        run.discard_interruption()
    running.lift_limit(job)
    ended_at, run.cpu_seconds = time.monotonic(), time.thread_time()
    return msgspec.structs.replace(
        outcome, run_seconds=ended_at - begun_at, cpu_seconds=run.cpu_seconds - cpu_began
    )


def _attempt(job: ClaimedJob, run: ThreadRun, functions: Functions, begun_at: float) -> Outcome:
    """Calls the function. An interruption may be raised in any line of this function."""
    outcome: Outcome | None = None
    try:
        try:
            run.begin(job, begun_at)
            with span(job) as job.live.span:
                outcome = functions.call(job, run)
        except Verdict as verdict:
            outcome = Outcome(verdict=verdict)
        except BaseException as error:  # an author may raise anything, SystemExit included
            outcome = failure(job, error)
        run.end()
    except Interruption as late:  # it struck between the job's end and here
        run.end()
        outcome = outcome or Outcome(error=error_of(late, ""))
    return outcome
