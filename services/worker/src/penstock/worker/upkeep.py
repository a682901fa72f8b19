"""What a worker does at regular intervals: extend its claims, report, look after itself."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from penstock.bus.protocol import Bus, BusError
from penstock.runtime.limited_log import LimitedLog
from penstock.worker.claiming.claimed_job import ClaimDeadline, ClaimedJob
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.claiming.lost_jobs import LostJobs
from penstock.worker.lifetime import Lifetime
from penstock.worker.orphan import Orphan
from penstock.worker.reports import Reporter
from penstock.worker.running.job_limits import JobLimits
from penstock.worker.running.recording import Recorder
from penstock.worker.running.runner import JobRunner
from penstock.worker.state import BROKEN, ORPHANED, WorkerState

log = logging.getLogger("penstock.worker")

_TICK_SECONDS = 0.25
_REPORT_SECONDS = 1.0
_CHECK_SECONDS = 1.0
_CONFIRMED_AT_ONCE = 64
"""Jobs of which the broker is asked, in each check, whether they still are this worker's. A lost
claim is noticed at once by other means; this is for notices that were lost."""
_HELD_SECONDS = 1.0


@dataclass(kw_only=True)
class Upkeep:
    """The periodic duties of a worker, as one task of its loop."""

    bus: Bus
    claim_deadline: ClaimDeadline
    in_flight: InFlightJobs
    job_limits: JobLimits
    lifetime: Lifetime
    lost_jobs: LostJobs
    orphan: Orphan
    recorder: Recorder
    reporter: Reporter
    runner: JobRunner
    state: WorkerState
    _lapsed: bool = False
    _log: LimitedLog = field(default_factory=lambda: LimitedLog(log))

    async def run(self) -> None:
        """Without end. What the broker refuses is tried again at the next tick."""
        intervals: dict[Callable[[], Awaitable[None]], float] = {
            self._extend: self.claim_deadline.claim_seconds / 3,
            self.reporter.send: _REPORT_SECONDS,
            self._check: _CHECK_SECONDS,
        }
        done_at = dict.fromkeys(intervals, time.monotonic())
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = time.monotonic()
            self.job_limits.check()
            try:
                for duty, seconds in intervals.items():
                    if now - done_at[duty] >= seconds:
                        done_at[duty] = now
                        await duty()
            except BusError as error:
                log.debug("tick: %s", error)

    async def _extend(self) -> None:
        if self.claim_deadline.has_passed():
            self._lapsed = True
            await self.in_flight.release(self.in_flight.take_back(), "its claim lapsed")
        self.claim_deadline.extend()
        await self.bus.extend(
            [job.delivery for job in self.in_flight.jobs.values() if not job.lost]
        )

    async def _check(self) -> None:
        if not self.runner.alive:
            log.critical("the job thread has ended: the worker process ends too")
            os._exit(BROKEN)
        if self.orphan.is_orphaned():
            self.state.stop(ORPHANED)
        self.lifetime.end_at_limit()
        self._look_at_holder()
        for job in self._next_to_confirm():
            await self.recorder.progress(job)
            await self.lost_jobs.confirm(job)

    def _next_to_confirm(self) -> list[ClaimedJob]:
        """All jobs that run for a while; of many some at a time, in turn, unless their claims may
        have lapsed."""
        long = [
            job for job in self.runner.running.jobs if job.live.running_seconds() >= _CHECK_SECONDS
        ]
        if self._lapsed or len(long) <= _CONFIRMED_AT_ONCE:
            self._lapsed = False
            return long
        long.sort(key=lambda job: job.confirmed_at)
        del long[_CONFIRMED_AT_ONCE:]
        for job in long:
            job.confirmed_at = time.monotonic()
        return long

    def _look_at_holder(self) -> None:
        if (holder := self.runner.holder) is None:
            return
        job, since = holder
        if (seconds := time.monotonic() - since) >= _HELD_SECONDS:
            self._log.write(
                logging.WARNING, job.id,
                "job %s (%s) has kept the event loop of asynchronous jobs for %.1f s: the others "
                "of this worker wait; await what takes long, or use asyncio.to_thread",
                job.id, job.payload.function, seconds,
            )  # fmt: skip
