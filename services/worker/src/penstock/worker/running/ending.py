"""Ending a running job from outside: by an interruption, or in the end with this process.

A thread cannot be killed, nor a task that swallows its cancellation. Where such a job shares its
process with others, the worker takes no more jobs, and the others may go on for
``host.drain_seconds``; what still runs then is interrupted and goes back to its queue. The end of
the job that does not stop is recorded last, so that it is not retried while it still runs here.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from penstock.bus.protocol import BusError
from penstock.jobs.errors import Cancelled, Interruption
from penstock.runtime.tasks import Tasks, within
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
_POLL_SECONDS = 0.05


class Ending:
    """Interrupts a running job; when it does not stop, records its end and ends the process.

    Args:
        tasks: the worker's.
        slots: how many jobs it runs at a time.
        grace_seconds: how long an interrupted job may go on.
        drain_seconds: how long the others may go on when one does not stop.
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
        slots: int,
        grace_seconds: float,
        drain_seconds: float,
    ) -> None:
        self._running, self._in_flight, self._recorder = running, in_flight, recorder
        self._reporter, self._spark, self._state, self._tasks = reporter, spark, state, tasks
        self._grace_seconds = max(grace_seconds, _LEAST_GRACE_SECONDS)
        self._shares_process, self._drain_seconds = slots > 1, drain_seconds
        self._overdue: dict[ClaimedJob, str] = {}
        self._quitting: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    def end(self, job: ClaimedJob, reason: type[Interruption], why: str) -> None:
        """Raises ``reason`` in the job, if it still runs."""
        if job not in self._running:
            return
        self._running.interrupt(job, reason)
        if job.live.spark_session:
            self._tasks.spawn(asyncio.to_thread(self._spark.interrupt, job.id))
        self._running.limit(job, self._most_seconds)
        self._loop.call_later(self._grace_seconds, self._give_up, job, why)

    @property
    def _most_seconds(self) -> float:
        """Until a job that was interrupted now has ended, at the latest with this process."""
        alone = self._grace_seconds + 2 * _QUIT_SECONDS
        if not self._shares_process:
            return alone
        return alone + self._drain_seconds + self._grace_seconds + _QUIT_SECONDS

    def _give_up(self, job: ClaimedJob, why: str) -> None:
        if job in self._running and job not in self._overdue:
            log.error("job %s does not stop although %s: this worker ends", job.id, why)
            self._overdue[job] = why
            if self._quitting is None or self._quitting.done():
                self._quitting = self._tasks.spawn(self._quit(f"a job did not stop although {why}"))

    async def _quit(self, why: str) -> None:
        if self._shares_process:
            self._state.stop(why)
            await self._end_others(why)
            if not self._running.jobs:  # the one that did not stop has, after all
                return
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(_QUIT_SECONDS):
                await self._in_flight.release(self._not_begun(), why)
                await self._record({**self._overdue, **dict.fromkeys(self._running.jobs, why)})
                self._state.stopping = why
                await self._reporter.send()
        os._exit(UNRESPONSIVE)  # what still runs cannot be ended otherwise

    async def _end_others(self, why: str) -> None:
        """Lets the other jobs go on for a while, then interrupts them."""
        if not await within(self._drain_seconds, _none_of(self._others)):
            for job in self._others():
                job.yielded = job.yielded or why
                self._running.interrupt(job, Cancelled)
            await within(self._grace_seconds, _none_of(self._others))
        await within(_QUIT_SECONDS, _none_of(self._unrecorded))

    def _not_begun(self) -> list[ClaimedJob]:
        """Those that wait for a slot, and for an event loop that a job has blocked."""
        waiting = self._in_flight.take_back()
        waits = (job for job in self._in_flight.jobs.values() if job.live.begun_at is None)
        return list(dict.fromkeys((*waiting, *waits)))

    def _others(self) -> list[ClaimedJob]:
        return [job for job in self._running.jobs if job not in self._overdue]

    def _unrecorded(self) -> list[ClaimedJob]:
        """Those that have ended, and whose ends are on their way to the broker."""
        held = self._in_flight.jobs.values()
        return [job for job in held if job.live.begun_at is not None and job not in self._running]

    async def _record(self, jobs: Iterable[ClaimedJob]) -> None:
        """Records how these ended, although their functions still run."""
        for job in jobs:
            if not job.lost and self._in_flight.jobs.get(job.id) is job:
                error = job.live.exceeded or timed_out(job.timeout_seconds)
                outcome = Outcome(error=error, run_seconds=job.live.running_seconds())
                await self._recorder.record([FinishedJob(job, outcome)])
            self._in_flight.forget(job)


async def _none_of(jobs: Callable[[], list[ClaimedJob]]) -> None:
    """Returns when there is none of these."""
    while jobs():  # noqa: ASYNC110 - their ends have no event in common
        await asyncio.sleep(_POLL_SECONDS)
