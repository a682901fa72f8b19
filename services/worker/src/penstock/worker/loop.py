"""The worker: claims jobs, has them run, records how they ended, keeps what it holds."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from contextlib import suppress
from typing import Any

from penstock.bus.protocol import Bus, BusError, Delivery
from penstock.config import Settings
from penstock.config.topology import pools
from penstock.jobs.checkpoints import Checkpoints
from penstock.jobs.client import Client
from penstock.jobs.errors import Cancelled, TimedOut
from penstock.runtime.tasks import Tasks
from penstock.runtime.workers.assignment import Assignment
from penstock.runtime.workers.claims_file import Claimed
from penstock.runtime.workers.pulse import pulse_of
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.claims import Claims
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.claiming.intake import intake_of
from penstock.worker.claiming.lost_jobs import LostJobs
from penstock.worker.core.ahead import Ahead
from penstock.worker.core.outcome import timed_out
from penstock.worker.first_job import tell_first_job
from penstock.worker.lifetime import EMPTY, Lifetime
from penstock.worker.middleware import gates
from penstock.worker.middleware.exclusive import exclusively
from penstock.worker.middleware.gates import Gates
from penstock.worker.orphan import Orphan
from penstock.worker.reports import Reporter
from penstock.worker.rounds import go_round
from penstock.worker.running.commits import Commits
from penstock.worker.running.context import RunContext
from penstock.worker.running.ending import QUIT_SECONDS, Ending
from penstock.worker.running.recording import Recorder
from penstock.worker.running.runner import Runner
from penstock.worker.spark.lease import SparkLease

log = logging.getLogger("penstock.worker")

_LATER_SECONDS = 0.25
_REPORT_SECONDS = 1.0
_CHECK_SECONDS = 1.0
_MAX_UNRECORDED = 2048
ORPHANED = "orphaned"
ABANDONED = "orphaned, and without a broker"
UNRESPONSIVE = 75
"""Exit code of a worker whose job would not stop."""
BROKEN = 70
"""Exit code of a worker that found an error of its own (EX_SOFTWARE)."""


class Worker:
    """One process, one job at a time.

    Args:
        assignment: who it is and which queues it serves.
        spark: instead of the host's own.
    """

    def __init__(self, bus: Bus, assignment: Assignment, spark: SparkLease | None = None) -> None:
        settings: Settings = assignment.settings
        profile, middleware = gates.load(pools(settings)[assignment.pool].profile)
        self._bus = bus
        self._settings = settings
        self._assignment = assignment
        self._loop = asyncio.get_running_loop()
        claimed = Claimed(assignment.run_dir, assignment.worker)
        self._claims = Claims(bus, settings, profile, assignment.host, assignment.worker, claimed)
        self._subjects = self._claims.joblog.subjects
        self._recorder = Recorder(bus, self._claims, settings.jobs.max_payload_bytes)
        self._commits = Commits(bus, self._claims.joblog)
        self._intake = intake_of(bus, assignment)
        self._reporter = Reporter(
            bus,
            self._subjects,
            host=assignment.host,
            worker=assignment.worker,
            pool=assignment.pool,
            sla_seconds=profile.sla_seconds,
        )
        self._client = Client.over(bus, settings)
        self._checkpoints = Checkpoints(bus, self._subjects, settings.jobs.max_checkpoint_bytes)
        self._spark = spark or SparkLease(assignment.run_dir, settings.spark)
        self._runner = Runner(self._context, self._collect)
        self._in_flight = InFlightJobs(self._claims, self._runner)
        self._tasks = Tasks(self._broke)
        self._pulse = pulse_of(assignment)
        self._runner.pulse, self._runner.lapsed = self._pulse, self._lapsed
        self._gates = Gates(bus, assignment, middleware, self._runner.surrender)
        self._runner.gates = self._gates
        self._ending = Ending(
            self._runner,
            self._spark,
            settings.jobs.cancel_grace_seconds,
            self._must_quit,
        )
        self._lost_jobs = LostJobs(
            bus,
            self._claims.joblog,
            self._in_flight,
            self._ending,
            self._spark,
            settings.jobs.cancel_grace_seconds,
            self._tasks,
        )
        self._ahead = Ahead(settings.jobs.claim_ahead_seconds)
        self._lifetime = Lifetime(profile, assignment.burst)
        self._orphan = Orphan(assignment.run_dir, settings.host.orphan_grace_seconds)
        self._exclusive = exclusively(bus, assignment, self._in_flight.changed.set, self._yield)
        self._taking: asyncio.Task[Any] | None = None
        self._winning: set[asyncio.Task[Any]] = set()
        self._long: ClaimedJob | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._extended_at = time.monotonic()
        self._told_busy = False
        self._took_first = False
        self.paused = self._hurried = False
        self.stopping = ""
        self.exit_code = 0

    def _context(self, job: ClaimedJob) -> RunContext:
        checkpoints, worker = self._checkpoints, self._assignment.worker
        ring = self._claims.ring
        return RunContext(
            job, self._loop, self._client, self._spark, self._commits, checkpoints, ring, worker
        )

    # --- the way of a job ------------------------------------------------------------------------
    async def run(self) -> None:
        """Until :meth:`stop`; then finishes the running job and gives the others back."""
        notices = await self._bus.listen(self._subjects.cancel_notice("*"), self._lost_jobs.hear)
        resumed = await self._claims.hear_resumptions()
        claim_seconds = self._settings.jobs.claim_seconds
        ticking = self._tasks.spawn(
            go_round(
                {
                    self._extend: claim_seconds / 3,
                    self._report: _REPORT_SECONDS,
                    self._check: _CHECK_SECONDS,
                }
            )
        )
        leasing = self._tasks.spawn(self._exclusive.run()) if self._exclusive else None
        try:
            await self._report()
            while not self.stopping:
                await self._take_some()
            await self._intake.close()
            if self._winning:
                await asyncio.wait(self._winning)
            await self._in_flight.release(self._in_flight.take_back(), self.stopping)
            self._hurry()  # one may have begun meanwhile
            host = self._settings.host
            left = self.stopping in (ORPHANED, ABANDONED)
            await self._in_flight.settled(host.orphan_grace_seconds if left else host.drain_seconds)
        finally:
            self._orphan.closing()
            ticking.cancel()
            await notices.unsubscribe()
            await resumed.unsubscribe()
            self._runner.stop()
            self._spark.close()
            await self._gates.close()
            if leasing and self._exclusive:
                leasing.cancel()
                await self._exclusive.release()
            with suppress(BusError):
                await self._report()

    async def _take_some(self) -> None:
        self._in_flight.changed.clear()  # before looking, so that no change in between is missed
        room = 0 if self._long else self._ahead.room(self._in_flight.unfinished)
        room = self._lifetime.room(room, self._in_flight.unfinished)
        if room == 0 or not self._may_begin or len(self._in_flight.jobs) > _MAX_UNRECORDED:
            await self._in_flight.changed.wait()
            return
        idle = self._in_flight.unfinished == 0
        self._taking = self._tasks.spawn(self._take(room, idle))
        await asyncio.wait([self._taking])  # its errors are told by `_ended`
        failed = self._taking.cancelled() or self._taking.exception()
        if not failed and not self._taking.result() and not idle:
            await self._in_flight.changed.wait()

    async def _take(self, room: int, wait: bool) -> bool:
        try:
            deliveries = await self._intake.take(room, wait and not self._lifetime.burst)
            if not deliveries:
                if wait and self._lifetime.burst:
                    self.stop(EMPTY)
                return False
            winning = self._tasks.spawn(self._win(deliveries))
            self._winning.add(winning)
            winning.add_done_callback(self._winning.discard)
            won = await asyncio.shield(winning)
            self._ahead.won(len(won), len(deliveries))
        except BusError as error:
            log.warning("no jobs now: %s", error)
            await asyncio.sleep(_LATER_SECONDS)
            return True
        return bool(won)

    @property
    def _may_begin(self) -> bool:
        held = self._exclusive is None or self._exclusive.held
        return held and not (self.paused or self.stopping)

    async def _win(self, deliveries: list[Delivery]) -> list[ClaimedJob]:
        fresh = [d for d in deliveries if d.deliveries == 1 or not self._in_flight.resume(d)]
        won = await self._claims.win(fresh) if fresh else []
        if not won:
            return won
        self._reporter.started(won)
        if not self._took_first:
            self._took_first = True
            tell_first_job(self._assignment, won[0])
        for job in won:
            if job.id in self._in_flight.jobs:
                await self._lost_jobs.lose(self._in_flight.jobs[job.id], None)
            self._in_flight.jobs[job.id] = job
        if not self._may_begin:
            await self._in_flight.release(won, self.stopping or "its worker may not begin it now")
            return won
        self._in_flight.begin(won)
        self._watch_over()
        return won

    def _collect(self) -> None:
        """Called when the job thread has finished some."""
        done = self._runner.collect()
        if not done:
            return
        self._in_flight.unfinished -= len(done)
        self._lifetime.done += len(done)
        self._end_at_limit()
        for job in done:
            self._ahead.saw(job.run_seconds)
            if job.used_spark:
                self._spark.release(job.id)
            if job is self._long:
                self._long = None
        self._gates.ended(done)
        self._reporter.finished(done)
        self._in_flight.changed.set()
        self._tasks.spawn(self._record(done))

    async def _record(self, done: list[ClaimedJob]) -> None:
        try:
            if self._spark.measures_cost:
                for job in [job for job in done if job.used_spark]:
                    job.spark_cost = await asyncio.to_thread(self._spark.cost, job.token)
            await self._recorder.record(done)
        finally:
            for job in done:
                self._in_flight.forget(job)
        if not self._in_flight.jobs and self._told_busy:
            self._told_busy = False
            await self._report()

    def _take_no_more(self) -> None:
        if self._taking is not None:
            self._taking.cancel()

    # --- an exclusive queue ----------------------------------------------------------------------
    async def _yield(self) -> None:
        """Nobody may run jobs here any more: returns when nobody does."""
        self._take_no_more()
        why = "the lease of its queue was lost"
        behind = self._in_flight.take_back()
        if (running := self._runner.current) is not None:
            self._runner.surrender(running, why)
        await self._in_flight.release(behind, why)
        while self._in_flight.unfinished:  # noqa: ASYNC110 - `changed` is the taker's to clear
            await asyncio.sleep(0.01)

    # --- keeping what is held ---------------------------------------------------------------------
    def _watch_over(self) -> None:
        """Looks at the running job once it has taken longer than what may be claimed ahead."""
        if self._watch is None:
            delay = max(self._settings.jobs.claim_ahead_seconds, 0.01)
            self._watch = self._loop.call_later(delay, self._look)

    def _look(self) -> None:
        self._watch = None
        self._collect()  # what has ended is not kept waiting by what runs
        job, limit = self._runner.current, self._settings.jobs.claim_ahead_seconds
        if not self._in_flight.unfinished or job is self._long is not None:
            return
        if job is None or job.begun_at is None or time.monotonic() - job.begun_at < limit:
            self._watch_over()
            return
        self._long = job
        self._ahead.saw(time.monotonic() - job.begun_at)
        if behind := self._in_flight.take_back():  # it is long: no other job waits behind it
            self._tasks.spawn(self._in_flight.release(behind, "held behind a long job"))
        self._told_busy = True
        self._tasks.spawn(self._report())
        if job.timeout_seconds:
            left = job.begun_at + job.timeout_seconds - time.monotonic()
            self._loop.call_later(max(left, 0.0), self._ending.end, job, TimedOut, "it timed out")

    def _lapsed(self) -> bool:
        """What is held may be others' by now: this process was stopped, or stuck in C code."""
        return time.monotonic() - self._extended_at > self._settings.jobs.claim_seconds

    async def _extend(self) -> None:
        if self._lapsed():
            await self._in_flight.release(self._in_flight.take_back(), "its claim lapsed")
        self._extended_at = time.monotonic()
        if self._pulse:
            self._pulse.beat()
        await self._bus.extend(
            [job.delivery for job in self._in_flight.jobs.values() if not job.lost]
        )

    async def _report(self) -> None:
        state = "busy" if self._in_flight.unfinished else "idle"
        if self.stopping or self.paused:
            state = "draining"
        held = list(self._in_flight.jobs.values())
        await self._reporter.send(state, held, spark=self._spark.session_id, because=self.stopping)

    async def _check(self) -> None:
        if not self._runner.alive:
            log.critical("the job thread has ended: so does this worker")
            os._exit(BROKEN)
        if self._orphan.lapsed():
            self.stop(ORPHANED)
        self._end_at_limit()
        job = self._runner.current
        if job is None or job.begun_at is None or time.monotonic() - job.begun_at < _CHECK_SECONDS:
            return
        await self._recorder.progress(job)
        await self._lost_jobs.confirm(job)

    # --- ending with the job that does not stop ---------------------------------------------------
    def _must_quit(self, job: ClaimedJob, why: str) -> None:
        self._tasks.spawn(self._quit(job, why))

    async def _quit(self, job: ClaimedJob, why: str) -> None:
        with suppress(BusError, TimeoutError):
            async with asyncio.timeout(QUIT_SECONDS):
                await self._in_flight.release(self._runner.take_back(), why)
                if not job.lost:
                    job.ended_at = time.monotonic()
                    job.error = timed_out(job.timeout_seconds)
                    await self._recorder.record([job])
                self._in_flight.forget(job)
                self.stopping = f"a job did not stop although {why}"
                await self._report()
        os._exit(UNRESPONSIVE)

    # --- the process ------------------------------------------------------------------------------
    def stop(self, reason: str) -> None:
        """Finishes the running job, takes no other."""
        if not self.stopping:
            self.stopping = reason
            log.info("ending: %s", reason)
        self._take_no_more()
        self._in_flight.changed.set()

    def quit(self, reason: str) -> None:
        """The same, quicker: the running job is interrupted and given back too."""
        self._hurried = True
        self.stop(reason)
        self._hurry()

    def guard_process(self) -> None:
        """Kills this process if it outlives executor and broker, or hangs when it should end.

        Only for a process that is this worker and nothing else.
        """
        self._orphan.guard_process(lambda: self._bus.connected, self._abandoned)

    def _abandoned(self) -> None:
        self._loop.call_soon_threadsafe(self.quit, ABANDONED)

    def _hurry(self) -> None:
        running = self._runner.current
        if self._hurried and running is not None and not running.yielded:
            running.yielded = self.stopping
            self._ending.end(running, Cancelled, self.stopping)

    def _end_at_limit(self) -> None:
        if reason := self._lifetime.over():
            self.stop(reason)

    def pause(self) -> None:
        self.paused = True
        self._take_no_more()

    def resume(self) -> None:
        self.paused = False
        self._in_flight.changed.set()

    def _broke(self, error: BaseException) -> None:
        self.exit_code = BROKEN
        self.stop(f"broken: {error!r}")
