"""Threads for plain functions, in a worker that runs several jobs at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running.running_jobs import RunningJobs, ThreadRun

log = logging.getLogger("penstock.worker")

Work = Callable[[ClaimedJob, ThreadRun], ClaimedJob | None]
"""Runs a job in the calling thread; returns the next one for it, if there is one."""


class JobThreads:
    """Starts a thread when a job comes and none is idle; they stay until :meth:`stop`.

    Args:
        work: called in the threads; what it raises is a defect of this worker.

    Attributes:
        broken: a thread ended by such a defect.
    """

    def __init__(self, work: Work, running: RunningJobs) -> None:
        self._work, self._running = work, running
        self._jobs: SimpleQueue[ClaimedJob | None] = SimpleQueue()
        self._guard = threading.Lock()
        self._idle = self._started = 0
        self.broken = False

    def start(self, job: ClaimedJob) -> None:
        """Has a thread run the job; from any thread."""
        self._jobs.put(job)
        with self._guard:
            if self._idle:
                self._idle -= 1
                return
            self._started += 1
            name = f"job-{self._started}"
        threading.Thread(target=self._forever, name=name, daemon=True).start()

    def stop(self) -> None:
        """Ends the idle threads, and the others after their jobs."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _forever(self) -> None:
        run = ThreadRun(self._running)
        try:
            while (job := self._jobs.get()) is not None:
                run.resume()
                while job is not None:
                    job = self._work(job, run)
                with self._guard:
                    self._idle += 1
        except BaseException:
            log.exception("a thread of jobs has ended")
            self.broken = True
