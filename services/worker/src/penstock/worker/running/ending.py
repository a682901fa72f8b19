"""Ending a running job from outside: by an interruption, or in the end with this process."""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress

from penstock.bus.protocol import BusError
from penstock.jobs.errors import Interruption
from penstock.runtime.tasks import Tasks
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.core.outcome import timed_out
from penstock.worker.reports import Reporter
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.running.recording import Recorder
from penstock.worker.running.running_jobs import RunningJobs
from penstock.worker.spark.lease import SparkLease
from penstock.worker.state import WorkerState

log = logging.getLogger("penstock.worker")

UNRESPONSIVE = 75
"""Exit code of a worker whose job would not stop."""
_QUIT_SECONDS = 5.0
"""What a process that ends with its job takes at most to report that."""
_LEAST_GRACE_SECONDS = 0.5


class Ending:
    """Interrupts the running job; when it does not stop, records its end and ends the process.

    Args:
        grace_seconds: how long an interrupted job may go on.
        tasks: the worker's.
    """

    def __init__(
        self,
        *,
        running: RunningJobs,
        in_flight: InFlightJobs,
        recorder: Recorder,
        reporter: Reporter,
        spark: SparkLease,
        state: WorkerState,
        tasks: Tasks,
        grace_seconds: float,
    ) -> None:
        self._running, self._in_flight, self._recorder = running, in_flight, recorder
        self._reporter, self._spark, self._state, self._tasks = reporter, spark, state, tasks
        self._grace_seconds = max(grace_seconds, _LEAST_GRACE_SECONDS)
        self._loop = asyncio.get_running_loop()

    def end(self, job: ClaimedJob, reason: type[Interruption], why: str) -> None:
        """Raises ``reason`` in the job, if it still runs."""
        if job not in self._running:
            return
        self._running.interrupt(job, reason)
        if job.live.spark_session:
            self._tasks.spawn(asyncio.to_thread(self._spark.interrupt, job.id))
        self._running.limit(job, self._grace_seconds + 2 * _QUIT_SECONDS)
        self._loop.call_later(self._grace_seconds, self._give_up, job, why)

    def _give_up(self, job: ClaimedJob, why: str) -> None:
        if job in self._running:
            log.error("job %s does not stop although %s: this worker ends", job.id, why)
            self._tasks.spawn(self._quit(job, why))

    async def _quit(self, job: ClaimedJob, why: str) -> None:
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(_QUIT_SECONDS):
                await self._in_flight.release(self._in_flight.take_back(), why)
                if not job.lost:
                    error = job.live.exceeded or timed_out(job.timeout_seconds)
                    outcome = Outcome(error=error, run_seconds=job.live.running_seconds())
                    await self._recorder.record([FinishedJob(job, outcome)])
                self._in_flight.forget(job)
                self._state.stopping = f"a job did not stop although {why}"
                await self._reporter.send()
        os._exit(UNRESPONSIVE)  # the job's thread cannot be ended otherwise
