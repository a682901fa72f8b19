"""The job thread: runs the author's functions one after another, while the loop keeps the claims.

The loop that talks to the broker stays in the main thread: a job that computes for an hour does not
keep its claim from being extended, and one that blocks for ever can still be seen and ended.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, suppress
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import Any

from penstock import telemetry
from penstock.jobs.errors import Cancelled, Interruption, TimedOut, Verdict, WrongResult
from penstock.jobs.registry import encode_result
from penstock.jobs.retry import outlook
from penstock.runtime.workers.pulse import Pulse
from penstock.telemetry import names
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.core.outcome import FINAL, error_of, timed_out, wrong_result
from penstock.worker.middleware import chain
from penstock.worker.middleware.gates import Gates
from penstock.worker.running import watchdog
from penstock.worker.running.memory_peak import MemoryPeak
from penstock.worker.running.watchdog import Watchdog

log = logging.getLogger("penstock.worker")

_TELL_EACH_SECONDS = 0.005
_LOOK_SECONDS = 0.005
_LOOP_SECONDS = 1.0
"""Beyond its timeout a job is the loop's to end; a loop that cannot run has its process ended."""

_TURNS_UNTIL_RAISED = 1000
"""The first jump backwards raises what another thread, or this one, asked for."""

MakeContext = Callable[[ClaimedJob], Any]


class Runner:
    """One thread, one job at a time.

    Attributes:
        gates: what jobs that ask for it run inside. pulse: tells the executor what runs.
        lapsed: no job is begun while this is so.

    Args:
        make_context: gives a held job its :class:`penstock.jobs.Context`.
        finished: called in the loop when finished jobs can be collected.
    """

    def __init__(self, make_context: MakeContext, finished: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._make_context = make_context
        self._finished = finished
        self.gates: Gates | None = None
        self._todo: deque[ClaimedJob] = deque()
        self._done: deque[ClaimedJob] = deque()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._guard = threading.Lock()
        self._told = False
        self.current: ClaimedJob | None = None
        self._dog: Watchdog | None = None
        self._inner: asyncio.AbstractEventLoop | None = None
        self.pulse: Pulse | None = None
        self.lapsed: Callable[[], bool] = lambda: False
        self._memory = MemoryPeak()
        self._thread = threading.Thread(target=self._forever, name="job", daemon=True)
        self._thread.start()

    # --- called in the loop -----------------------------------------------------------------------
    def add(self, jobs: list[ClaimedJob]) -> None:
        self._todo.extend(jobs)
        self._wake.put(True)

    def collect(self) -> list[ClaimedJob]:
        """The jobs finished since the last call."""
        self._told = False
        found = []
        while self._done:
            found.append(self._done.popleft())
        return found

    def take_back(self) -> list[ClaimedJob]:
        """The jobs not begun, which now never will be."""
        taken = []
        while self._todo:
            try:
                taken.append(self._todo.pop())
            except IndexError:
                break
        return taken

    def drop(self, job: ClaimedJob) -> bool:
        """Takes back one job; False when it has begun."""
        try:
            self._todo.remove(job)
        except ValueError:
            return False
        return True

    def interrupt(self, job: ClaimedJob, reason: type[Interruption]) -> None:
        """Raises ``reason`` in the job's thread if it still runs; waits for no one."""
        with self._guard:
            if self.current is job and job.interrupted is None:
                job.interrupted = reason
                _raise_in(self._thread, reason)
                if (inner := self._inner) is not None:  # it may wait for its next event
                    with suppress(RuntimeError):  # it has just been closed
                        inner.call_soon_threadsafe(_nothing)

    def last_chance(self, job: ClaimedJob, seconds: float) -> None:
        """The loop sees to the end of this job; it is given so long."""
        with self._guard:
            if self.current is job and job.timeout_seconds:
                self._end_at(seconds)

    def _end_at(self, seconds: float | None) -> None:
        """So far from now the kernel ends this process; None: it does not."""
        if self._dog is None:
            self._dog = Watchdog(signal.SIGALRM)
        if seconds is None:
            self._dog.disarm("timeout")
        else:
            self._dog.arm("timeout", watchdog.now() + seconds)

    def surrender(self, job: ClaimedJob, why: str) -> None:
        """The platform takes the job from here: unless it is done, it goes back to its queue."""
        if self.current is job:
            job.yielded = why
            self.interrupt(job, Cancelled)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

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
            told_at = time.monotonic()
            while self._todo:
                while self.lapsed():
                    time.sleep(_LOOK_SECONDS)
                try:
                    job = self._todo.popleft()
                except IndexError:  # taken back
                    break
                self._one(job)
                self._done.append(job)
                now = time.monotonic()
                if not self._todo or now - told_at > _TELL_EACH_SECONDS:
                    told_at = now
                    self._tell()

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._loop.call_soon_threadsafe(self._finished)

    def _one(self, job: ClaimedJob) -> None:
        with self._guard:
            job.begun_at = time.monotonic()
            if job.timeout_seconds:
                self._end_at(job.timeout_seconds + _LOOP_SECONDS)
            self.current = job
        self._memory.begin(job.begun_at)
        if self.pulse is not None:
            self.pulse.begin(job.id, job.delivery.ack_subject)
        cpu = time.thread_time()
        try:
            try:
                with _span(job) as job.span:
                    returned = self._call(job)
                    job.result = (
                        encode_result(None)
                        if returned is chain.SUPPRESSED
                        else job.kind.encode_result(returned)
                    )
            except Verdict as verdict:
                job.verdict = verdict
            except BaseException as error:  # an author may raise anything, SystemExit included
                self._note(job, error)
            with self._guard:
                self.current = None
        except Interruption as late:  # it struck between the job's end and here
            self.current = None
            if not job.result and job.error is None and job.verdict is None:
                job.error = error_of(late, "")
        if job.interrupted is not None:
            self._swallow()
        if job.timeout_seconds:
            self._end_at(None)
        job.cpu_seconds = time.thread_time() - cpu
        job.ended_at = time.monotonic()
        job.peak_memory_bytes = self._memory.end(job.begun_at, job.ended_at)

    def _note(self, job: ClaimedJob, error: BaseException) -> None:
        """What an attempt that did not succeed leads to."""
        if isinstance(error, WrongResult):
            job.error, job.outlook = wrong_result(error), FINAL
            return
        if isinstance(error, TimedOut):
            job.error = timed_out(job.timeout_seconds)
        else:
            job.error = error_of(error, traceback.format_exc())
        try:
            job.outlook = outlook(job.kind.retries, job.attempt, error)
        except Exception:
            log.exception("job %s: its own backoff failed; the usual one is taken", job.id)
            return
        if job.outlook.harmless:
            job.forgiven, job.error = f"{job.error.kind}: {job.error.message}", None
            job.result = encode_result(None)

    def _swallow(self) -> None:
        """An interruption that was not raised yet must not hit the next job.

        It is replaced by another, which is raised here. CPython 3.11 leaves a flag set where one is
        taken back, or none was left to take, and a call under ``sys.settrace`` then never returns.
        """
        with suppress(Interruption):
            _raise_in(self._thread, Interruption)
            for _ in range(_TURNS_UNTIL_RAISED):
                pass

    def _call(self, job: ClaimedJob) -> Any:
        kind = job.kind
        if kind.middleware or (self.gates is not None and self.gates.pool):
            return self._call_within(job)
        if kind.takes_context:
            result = kind.function(self._make_context(job), **job.arguments)
        else:
            result = kind.function(**job.arguments)
        return self._await(result) if kind.is_async else result

    def _call_within(self, job: ClaimedJob) -> Any:
        """As :meth:`_call`, inside the pool's middleware and the job's own."""
        kind, context = job.kind, self._make_context(job)
        assert self.gates is not None
        arounds = self.gates.around(job, context)
        call = partial(kind.function, **job.arguments)
        if kind.takes_context:
            call = partial(call, context)
        if kind.is_async or any(isinstance(each, AbstractAsyncContextManager) for each in arounds):
            return self._await(chain.call_async(arounds, call))
        return chain.call(arounds, call)

    def _await(self, work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner() as runner:
            self._inner = runner.get_loop()
            try:
                return runner.run(work)
            finally:
                self._inner = None


def _nothing() -> None:
    """Wakes a loop."""


def _span(job: ClaimedJob) -> Any:
    if (unsampled := telemetry.unsampled()) is not None:
        return unsampled
    return telemetry.handling(
        _shape(job.payload.function, job.queue),
        job.delivery.headers,
        (job.id, job.attempt, job.pickup_seconds, job.token),
    )


@lru_cache(1024)
def _shape(function: str, queue: str) -> telemetry.Shape:
    return telemetry.Shape(
        names.run(function),
        telemetry.SpanKind.CONSUMER,
        fixed={
            names.MESSAGING_SYSTEM: names.NATS,
            names.MESSAGING_OPERATION_NAME: "run",
            names.MESSAGING_OPERATION_TYPE: names.PROCESS,
            names.MESSAGING_DESTINATION: queue,
            names.FUNCTION: function,
        },
        varying=(
            names.MESSAGING_MESSAGE_ID,
            names.ATTEMPT,
            names.WAIT_SECONDS,
            names.FENCING_TOKEN,
        ),
    )


def _raise_in(thread: threading.Thread, error: type[BaseException]) -> None:
    target = ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), target)
