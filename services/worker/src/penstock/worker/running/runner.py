"""The job thread: runs the author's functions one after another, while the loop keeps the claims.

The loop that talks to the broker stays in the main thread: a job that computes for an hour does not
keep its claim from being extended, and one that blocks for ever can still be seen and ended.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import lru_cache, partial
from queue import SimpleQueue
from typing import Any

import msgspec

from penstock import telemetry
from penstock.jobs.errors import Interruption, TimedOut, Verdict, WrongResult
from penstock.jobs.job_type import encode_result
from penstock.jobs.retry import outlook
from penstock.runtime.workers.pulse import Pulse
from penstock.telemetry import names
from penstock.worker.claiming.claimed_job import ClaimDeadline, ClaimedJob
from penstock.worker.core.outcome import FINAL, error_of, timed_out, wrong_result
from penstock.worker.middleware import gates as middleware
from penstock.worker.middleware.gates import Gates
from penstock.worker.output.job_output import JobOutput
from penstock.worker.running.current_run import CurrentRun
from penstock.worker.running.memory_peak import MemoryPeak
from penstock.worker.running.outcome import FinishedJob, Outcome

log = logging.getLogger("penstock.worker")

_ANNOUNCE_SECONDS = 0.005
"""Finished jobs are announced together: waking the loop costs as much as a no-op job."""
_LAPSED_POLL_SECONDS = 0.005

MakeContext = Callable[[ClaimedJob], Any]


class Runner:
    """One thread, one job at a time.

    Args:
        make_context: gives a held job its :class:`penstock.jobs.Context`.
        current: the run that others may interrupt.
        gates: the middleware that jobs run inside; None for none.
        claim_deadline: no job is begun after it.
        pulse: shows the executor which job runs; None without an executor.
        output: what jobs write while they run; None leaves it as it is.

    Attributes:
        finished: set when finished jobs can be collected.
    """

    def __init__(
        self,
        make_context: MakeContext,
        current: CurrentRun,
        *,
        gates: Gates | None = None,
        claim_deadline: ClaimDeadline | None = None,
        pulse: Pulse | None = None,
        output: JobOutput | None = None,
    ) -> None:
        self._output = output
        self._loop = asyncio.get_running_loop()
        self._make_context, self.current = make_context, current
        self._gates, self._claim_deadline, self._pulse = gates, claim_deadline, pulse
        self._todo: deque[ClaimedJob] = deque()
        self._done: deque[FinishedJob] = deque()
        self._wake: SimpleQueue[bool] = SimpleQueue()
        self._announced = False
        self._memory = MemoryPeak()
        self.finished = asyncio.Event()
        self._thread = threading.Thread(target=self._forever, name="job", daemon=True)
        self._thread.start()

    # --- called in the loop -----------------------------------------------------------------------
    def add(self, jobs: list[ClaimedJob]) -> None:
        self._todo.extend(jobs)
        self._wake.put(True)

    def collect(self) -> list[FinishedJob]:
        """The jobs finished since the last call."""
        self._announced = False
        collected = []
        while self._done:
            collected.append(self._done.popleft())
        return collected

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
            announced_at = time.monotonic()
            while self._todo:
                self._wait_while_lapsed()
                try:
                    job = self._todo.popleft()
                except IndexError:  # taken back
                    break
                with self._output.of(job) if self._output else nullcontext():
                    outcome = self._run(job)
                self._done.append(FinishedJob(job, outcome))
                now = time.monotonic()
                if not self._todo or now - announced_at > _ANNOUNCE_SECONDS:
                    announced_at = now
                    self._announce()

    def _wait_while_lapsed(self) -> None:
        while self._claim_deadline is not None and self._claim_deadline.has_passed():
            time.sleep(_LAPSED_POLL_SECONDS)

    def _announce(self) -> None:
        if not self._announced:
            self._announced = True
            self._loop.call_soon_threadsafe(self.finished.set)

    def _run(self, job: ClaimedJob) -> Outcome:
        begun_at = time.monotonic()
        self._memory.begin(begun_at)
        if self._pulse is not None:
            self._pulse.begin(job.id, job.delivery.ack_subject)
        cpu = time.thread_time()
        outcome = self._attempt(job, begun_at)
        self.current.discard_interruption()
        self.current.lift_limit(job)
        cpu_seconds, ended_at = time.thread_time() - cpu, time.monotonic()
        return msgspec.structs.replace(
            outcome,
            run_seconds=ended_at - begun_at,
            cpu_seconds=cpu_seconds,
            peak_memory_bytes=self._memory.end(begun_at, ended_at),
        )

    def _attempt(self, job: ClaimedJob, begun_at: float) -> Outcome:
        """Calls the function. An interruption may be raised in any line of this method."""
        outcome: Outcome | None = None
        try:
            try:
                self.current.begin(job, begun_at)
                with _span(job) as job.live.span:
                    outcome = Outcome(result=self._result(job))
            except Verdict as verdict:
                outcome = Outcome(verdict=verdict)
            except BaseException as error:  # an author may raise anything, SystemExit included
                outcome = _failure(job, error)
            self.current.end()
        except Interruption as late:  # it struck between the job's end and here
            self.current.end()
            outcome = outcome or Outcome(error=error_of(late, ""))
        return outcome

    def _result(self, job: ClaimedJob) -> bytes:
        returned = self._call(job)
        if returned is middleware.SUPPRESSED:
            return encode_result(None)
        return job.kind.encode_result(returned)

    def _call(self, job: ClaimedJob) -> Any:
        kind = job.kind
        if kind.middleware or (self._gates is not None and self._gates.pool):
            return self._call_within(job)
        if kind.takes_context:
            result = kind.function(self._make_context(job), **job.arguments)
        else:
            result = kind.function(**job.arguments)
        return self._await(result) if kind.is_async else result

    def _call_within(self, job: ClaimedJob) -> Any:
        """As :meth:`_call`, inside the pool's middleware and the job's own."""
        kind, context = job.kind, self._make_context(job)
        assert self._gates is not None
        arounds = self._gates.around(job, context)
        call = partial(kind.function, **job.arguments)
        if kind.takes_context:
            call = partial(call, context)
        if kind.is_async or any(isinstance(one, AbstractAsyncContextManager) for one in arounds):
            return self._await(middleware.call_async(arounds, call))
        return middleware.call(arounds, call)

    def _await(self, work: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner() as runner:
            self.current.waits_in(runner.get_loop())
            try:
                return runner.run(work)
            finally:
                self.current.waits_in(None)


def _failure(job: ClaimedJob, error: BaseException) -> Outcome:
    """What an attempt that did not succeed leads to."""
    if isinstance(error, WrongResult):
        return Outcome(error=wrong_result(error), outlook=FINAL)
    if isinstance(error, TimedOut):
        recorded = timed_out(job.timeout_seconds)
    else:
        recorded = error_of(error, traceback.format_exc())
    try:
        ahead = outlook(job.kind.retries, job.attempt, error)
    except Exception:
        log.exception("job %s: its own backoff failed; the usual one is taken", job.id)
        return Outcome(error=recorded)
    if ahead.harmless:
        ignored = f"{recorded.kind}: {recorded.message}"
        return Outcome(result=encode_result(None), ignored_error=ignored, outlook=ahead)
    return Outcome(error=recorded, outlook=ahead)


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
