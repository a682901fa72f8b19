"""The jobs that run now, and the ways to end them from outside their threads."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import threading
import time
from contextlib import suppress
from typing import Protocol

from penstock.jobs.errors import Cancelled, Interruption
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running import watchdog
from penstock.worker.running.memory_peak import resident_bytes
from penstock.worker.running.watchdog import Watchdog

_TIMEOUT_MARGIN_SECONDS = 1.0
"""Up to its timeout and so long after it, ending a job is the loop's affair. A loop that cannot
run by then, because C code holds the interpreter, has the kernel end the process."""
_STEPS_UNTIL_RAISED = 1000
"""The first jump backwards raises what another thread, or this one, asked for."""


class Run(Protocol):
    """What runs one job at a time."""

    def interrupt(self, job: ClaimedJob, reason: type[Interruption]) -> None:
        """Raises ``reason`` in the job if it still runs; does not wait for that."""
        ...


class RunningJobs:
    """All of a worker. Each job is added and removed by its own run, in the run's thread.

    Args:
        measures_memory: reads the memory in use when a job begins (10 µs).
    """

    def __init__(self, measures_memory: bool = False) -> None:
        self._measures_memory, self._has_begun = measures_memory, False
        self._runs: dict[ClaimedJob, Run] = {}
        self._guard = threading.Lock()  # of the watchdog
        self._watchdog: Watchdog | None = None

    def __contains__(self, job: object) -> bool:
        return job in self._runs

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def jobs(self) -> tuple[ClaimedJob, ...]:
        """Those that run at this moment, the one begun first in front."""
        return tuple(self._runs.copy())  # in one step: threads add and remove meanwhile

    # --- from the worker's loop -------------------------------------------------------------------
    def interrupt(self, job: ClaimedJob, reason: type[Interruption]) -> None:
        """Raises ``reason`` in the job if it still runs; does not wait for that."""
        if run := self._runs.get(job):
            run.interrupt(job, reason)

    def surrender(self, job: ClaimedJob, why: str) -> None:
        """The platform takes the job from here: unless it is done, it goes back to its queue."""
        if job in self._runs:
            job.yielded = why
            self.interrupt(job, Cancelled)

    def limit(self, job: ClaimedJob, seconds: float) -> None:
        """The loop is ending this job: the kernel ends the process if that takes longer."""
        with self._guard:
            if job in self._runs and job.timeout_seconds:
                self._end_process_in(job, seconds)

    # --- from the runs ----------------------------------------------------------------------------
    def add(self, job: ClaimedJob, run: Run, begun_at: float) -> None:
        """From here on the job may be interrupted.

        Args:
            begun_at: monotonic seconds.
        """
        job.live.begun_at = begun_at
        if self._measures_memory:
            job.live.is_heir, self._has_begun = self._has_begun, True
            job.live.first_memory_bytes = resident_bytes()
        if job.timeout_seconds:
            with self._guard:
                self._end_process_in(job, job.timeout_seconds + _TIMEOUT_MARGIN_SECONDS)
        self._runs[job] = run

    def remove(self, job: ClaimedJob) -> None:
        """From here on the job is not interrupted any more; an earlier call may still strike."""
        self._runs.pop(job, None)

    def lift_limit(self, job: ClaimedJob) -> None:
        """The job has ended in time."""
        if job.timeout_seconds and self._watchdog is not None:
            with self._guard:
                self._watchdog.disarm(_timeout_of(job))

    def _end_process_in(self, job: ClaimedJob, seconds: float) -> None:
        if self._watchdog is None:
            self._watchdog = Watchdog(signal.SIGALRM)
        self._watchdog.arm(_timeout_of(job), watchdog.now() + seconds)


class ThreadRun:
    """One job after another in a thread of their own. All but :meth:`interrupt` is the thread's.

    Args:
        running: where its job is to be found while it runs.

    Attributes:
        cpu_seconds: what the thread's CPU clock showed at the end of the last job, or of the last
            wait. Read once a job, since each reading is a system call of 0.7 µs.
    """

    def __init__(self, running: RunningJobs) -> None:
        self._running = running
        self.cpu_seconds = 0.0
        self._guard = threading.Lock()
        self._thread_id = self._cpu_clock = 0
        self._job: ClaimedJob | None = None
        self._interrupted = False
        self._event_loop: asyncio.AbstractEventLoop | None = None

    def interrupt(self, job: ClaimedJob, reason: type[Interruption]) -> None:
        with self._guard:
            if self._job is job and not self._interrupted:
                self._interrupted = True
                _raise_in(self._thread_id, reason)
                if (event_loop := self._event_loop) is not None:  # it may wait for its next event
                    with suppress(RuntimeError):  # it has just been closed
                        event_loop.call_soon_threadsafe(_wake_up)

    def resume(self) -> None:
        """The thread goes on after it waited for a job."""
        self.cpu_seconds = time.thread_time()

    def begin(self, job: ClaimedJob, begun_at: float) -> None:
        """From here on the job may be interrupted.

        Args:
            begun_at: monotonic seconds.
        """
        with self._guard:
            if not self._thread_id:
                self._thread_id = threading.get_ident()
                self._cpu_clock = time.pthread_getcpuclockid(self._thread_id)
            self._interrupted = False
            job.live.cpu_clock = self._cpu_clock, self.cpu_seconds
            self._job = job
            self._running.add(job, self, begun_at)

    def end(self) -> None:
        """From here on the job is not interrupted any more; an earlier call may still strike."""
        with self._guard:
            if self._job is not None:
                self._running.remove(self._job)
            self._job = None

    def discard_interruption(self) -> None:
        """An interruption that was not raised yet must not hit the next job.

        It is replaced by another, which is raised here. CPython 3.11 leaves a flag set where one is
        taken back, or none was left to take, and a call under ``sys.settrace`` then never returns.
        """
        if not self._interrupted:
            return
        with suppress(Interruption):
            _raise_in(self._thread_id, Interruption)
            for _ in range(_STEPS_UNTIL_RAISED):
                pass

    def waits_in(self, event_loop: asyncio.AbstractEventLoop | None) -> None:
        """The job is asynchronous and runs in this loop; None when it has ended."""
        self._event_loop = event_loop


def _timeout_of(job: ClaimedJob) -> str:
    return f"timeout of {job.id}"


def _wake_up() -> None:
    """Has a loop go round once, so that its thread raises what was asked for."""


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    target = ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), target)
