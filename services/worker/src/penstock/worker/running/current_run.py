"""The job that runs now, and the ways to end it from outside its thread."""

from __future__ import annotations

import asyncio
import ctypes
import signal
import threading
from contextlib import suppress

from penstock.jobs.errors import Cancelled, Interruption
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.running import watchdog
from penstock.worker.running.watchdog import Watchdog

_TIMEOUT_MARGIN_SECONDS = 1.0
"""Up to its timeout and so long after it, ending a job is the loop's affair. A loop that cannot
run by then, because C code holds the interpreter, has the kernel end the process."""
_STEPS_UNTIL_RAISED = 1000
"""The first jump backwards raises what another thread, or this one, asked for."""


class CurrentRun:
    """One at a time. ``begin``, ``end`` and ``discard_interruption`` belong to the job's thread.

    Attributes:
        job: None while no job runs.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._thread_id = 0
        self._interrupted = False
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._watchdog: Watchdog | None = None
        self.job: ClaimedJob | None = None

    # --- from the worker's loop -------------------------------------------------------------------
    def interrupt(self, job: ClaimedJob, reason: type[Interruption]) -> None:
        """Raises ``reason`` in the job's thread if the job still runs; does not wait for that."""
        with self._guard:
            if self.job is job and not self._interrupted:
                self._interrupted = True
                _raise_in(self._thread_id, reason)
                if (event_loop := self._event_loop) is not None:  # it may wait for its next event
                    with suppress(RuntimeError):  # it has just been closed
                        event_loop.call_soon_threadsafe(_wake_up)

    def surrender(self, job: ClaimedJob, why: str) -> None:
        """The platform takes the job from here: unless it is done, it goes back to its queue."""
        if self.job is job:
            job.yielded = why
            self.interrupt(job, Cancelled)

    def limit(self, job: ClaimedJob, seconds: float) -> None:
        """The loop is ending this job: the kernel ends the process if that takes longer."""
        with self._guard:
            if self.job is job and job.timeout_seconds:
                self._end_process_in(seconds)

    # --- in the job's thread ----------------------------------------------------------------------
    def begin(self, job: ClaimedJob, begun_at: float) -> None:
        """From here on the job may be interrupted.

        Args:
            begun_at: monotonic seconds.
        """
        with self._guard:
            self._thread_id, self._interrupted = threading.get_ident(), False
            job.live.begun_at = begun_at
            if job.timeout_seconds:
                self._end_process_in(job.timeout_seconds + _TIMEOUT_MARGIN_SECONDS)
            self.job = job

    def end(self) -> None:
        """From here on the job is not interrupted any more; an earlier call may still strike."""
        with self._guard:
            self.job = None

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

    def lift_limit(self, job: ClaimedJob) -> None:
        """The job has ended in time."""
        if job.timeout_seconds and self._watchdog is not None:
            self._watchdog.disarm("timeout")

    def waits_in(self, event_loop: asyncio.AbstractEventLoop | None) -> None:
        """The job is asynchronous and runs in this loop; None when it has ended."""
        self._event_loop = event_loop

    def _end_process_in(self, seconds: float) -> None:
        if self._watchdog is None:
            self._watchdog = Watchdog(signal.SIGALRM)
        self._watchdog.arm("timeout", watchdog.now() + seconds)


def _wake_up() -> None:
    """Has a loop go round once, so that its thread raises what was asked for."""


def _raise_in(thread_id: int, error: type[BaseException]) -> None:
    target = ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), target)
