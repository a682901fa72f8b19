"""The worker: claims jobs, has them run, records how they ended, keeps what it holds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec

from penstock.bus.protocol import BusError, Delivery
from penstock.config.topology import of_lane
from penstock.jobs.errors import Cancelled, TimedOut
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.parts import WorkerParts
from penstock.worker.running.outcome import FinishedJob, Outcome
from penstock.worker.state import ABANDONED
from penstock.worker.workflows.workflow_reader import EarlyReading

log = logging.getLogger("penstock.worker")

_RETRY_SECONDS = 0.25
_MAX_UNRECORDED = 2048
_LEAST_WATCH_SECONDS = 0.01
_LONG_ADVANCE_SECONDS = 1.0
"""An advance of a workflow waits for the broker at each inline step. Where that is busy, giving
back what was claimed behind it adds to its load: 900 of 2,400 workflows were, and half as many
ended a second."""


class Worker:
    """One process; one job at a time, or as many as its pool has slots.

    Args:
        parts: see :func:`penstock.worker.parts.assemble`.
    """

    def __init__(self, parts: WorkerParts) -> None:
        self._parts = parts
        self._state, self._tasks = parts.state, parts.tasks
        self._claims, self._in_flight, self._ahead = parts.claims, parts.in_flight, parts.ahead
        self._runner, self._running = parts.runner, parts.running
        self._reporter, self._spark, self._lifetime = parts.reporter, parts.spark, parts.lifetime
        self._exclusive = parts.exclusive
        self._settings = parts.assignment.settings
        self._loop = asyncio.get_running_loop()
        self._winning: set[asyncio.Task[list[ClaimedJob]]] = set()
        self._long_jobs: set[ClaimedJob] = set()
        self._watch: asyncio.TimerHandle | None = None
        self._reported_busy = False

    @property
    def stopping(self) -> str:
        """Why it ends; empty while it does not."""
        return self._state.stopping

    @property
    def exit_code(self) -> int:
        return self._state.exit_code

    # --- the process ------------------------------------------------------------------------------
    async def run(self) -> None:
        """Until :meth:`stop`; then finishes the running job and gives the others back."""
        subjects, on_notice = self._claims.joblog.subjects, self._parts.lost_jobs.on_notice
        notices = await self._parts.bus.listen(subjects.cancel_notice("*"), on_notice)
        resumptions = await self._claims.listen_for_resumptions()
        collecting = self._tasks.spawn(self._collect_finished())
        upkeep = self._tasks.spawn(self._parts.upkeep.run())
        leasing = self._tasks.spawn(self._exclusive.run()) if self._exclusive else None
        try:
            await self._reporter.send()
            while not self._state.stopping:
                await self._take_some()
            await self._settle()
        finally:
            self._parts.orphan.closing()
            upkeep.cancel()
            collecting.cancel()
            await notices.unsubscribe()
            await resumptions.unsubscribe()
            self._runner.stop()
            self._spark.close()
            await self._parts.gates.close()
            if leasing and self._exclusive:
                leasing.cancel()
                await self._exclusive.release()
            with suppress(BusError):
                await self._reporter.send()

    async def _settle(self) -> None:
        """Gives back what has not begun, waits for what runs, and for the records of both."""
        await self._parts.intake.close()
        if self._winning:
            await asyncio.wait(self._winning)
        await self._in_flight.release(self._in_flight.take_back(), self._state.stopping)
        self._hurry()  # a job may have begun since the request to end quickly
        host = self._settings.host
        alone = self._state.was_left_alone
        await self._in_flight.settled(host.orphan_grace_seconds if alone else host.drain_seconds)

    def stop(self, reason: str) -> None:
        """Finishes the running job, takes no other."""
        self._state.stop(reason)

    def quit(self, reason: str) -> None:
        """The same, quicker: the running job is interrupted and given back too."""
        self._state.hurried = True
        self._state.stop(reason)
        self._hurry()

    def pause(self) -> None:
        self._state.pause()

    def resume(self) -> None:
        self._state.resume()

    def guard_process(self) -> None:
        """Kills this process if it outlives executor and broker, or hangs when it should end.

        Only for a process that is this worker and nothing else.
        """
        bus = self._parts.bus
        self._parts.orphan.guard_process(lambda: bus.connected, self._on_abandoned)

    def _on_abandoned(self) -> None:
        self._loop.call_soon_threadsafe(self.quit, ABANDONED)

    def _hurry(self) -> None:
        for job in self._running.jobs if self._state.hurried else ():
            if not job.yielded:
                job.yielded = self._state.stopping
                self._parts.ending.end(job, Cancelled, self._state.stopping)

    # --- claiming ---------------------------------------------------------------------------------
    @property
    def _may_begin(self) -> bool:
        return self._state.takes_jobs and (self._exclusive is None or self._exclusive.held)

    async def _take_some(self) -> None:
        if rest_seconds := self._claims.rest_seconds:
            await asyncio.sleep(rest_seconds)
            return  # it may have been asked to stop meanwhile
        self._in_flight.changed.clear()  # before looking, so that no change in between is missed
        unfinished = self._in_flight.unfinished
        idle = self._ahead.free(unfinished) > 0
        most = partial(self._capacity, unfinished)
        # An idle worker takes one of any queue, also of one that is still to be discovered.
        first = next(iter(self._parts.intake.queues()), "")
        has_room = self._lifetime.capacity(idle, unfinished) or most(first)
        if not has_room or not self._may_begin or len(self._in_flight.jobs) > _MAX_UNRECORDED:
            await self._in_flight.changed.wait()
            return
        taking = self._tasks.spawn(self._take(most, wait=idle))
        self._state.requests(taking)
        await asyncio.wait([taking])  # an error of it is logged, and ends the worker, by its tasks
        failed = taking.cancelled() or taking.exception()
        if not failed and not taking.result() and not idle:
            await self._in_flight.changed.wait()

    def _capacity(self, unfinished: int, queue: str) -> int:
        # behind a job that runs for long none is claimed: another worker may be free
        count = self._ahead.free(unfinished)
        if not self._long_jobs:
            count = self._ahead.capacity(of_lane(queue)[0], unfinished)
        return self._lifetime.capacity(count, unfinished)

    async def _take(self, most: Callable[[str], int], wait: bool) -> bool:
        """Claims up to as many jobs as its queue permits; False when there were none."""
        try:
            deliveries = await self._parts.intake.take(most, wait and not self._lifetime.burst)
            if not deliveries:
                if wait:
                    self._lifetime.end_when_empty()
                return False
            winning = self._tasks.spawn(self._win(deliveries))
            self._winning.add(winning)
            winning.add_done_callback(self._winning.discard)
            # Shielded: the deliveries are this worker's, also when no more are to be taken.
            won = await asyncio.shield(winning)
        except BusError as error:
            log.warning("cannot take jobs now: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)
            return True
        return bool(won)

    async def _win(self, deliveries: Sequence[Delivery]) -> list[ClaimedJob]:
        # A redelivery of a job that runs here: its claim lapsed while this process was frozen.
        fresh = [d for d in deliveries if d.deliveries == 1 or not self._in_flight.resume(d)]
        self._claims.hold(fresh)
        early = await self._parts.advances.read_early(fresh)
        company = self._runner.company()
        won = await self._claims.win(fresh, company) if fresh else []
        self._ahead.won(len(won), len(deliveries) - company.refused)
        if not won:
            return won
        self._reporter.started(won)
        for job in won:
            # The same job once more: its earlier attempt here was given up by another process.
            if job.id in self._in_flight.jobs:
                await self._parts.lost_jobs.lose(self._in_flight.jobs[job.id], None)
            self._in_flight.jobs[job.id] = job
        ready: list[ClaimedJob] = []
        waiting: list[ClaimedJob] = []
        for job in won:
            (waiting if job.kind.kind else ready).append(job)
        if not self._may_begin:
            await self._in_flight.release(won, self._why_not)
            return won
        self._in_flight.begin(ready)
        if waiting:
            self._in_flight.hold(waiting)
            self._tasks.spawn(self._begin_when_read(waiting, early))
        self._watch_running_jobs()
        return won

    async def _begin_when_read(self, workflows: list[ClaimedJob], early: EarlyReading) -> None:
        """Begins them once their histories are read: no thread waits for the broker meanwhile."""
        await self._parts.advances.read_ahead(workflows, early)
        if self._may_begin:
            self._in_flight.begin_held(workflows)
            self._watch_running_jobs()
        else:
            await self._in_flight.release_held(workflows, self._why_not)

    @property
    def _why_not(self) -> str:
        return self._state.stopping or "its worker may not begin it now"

    # --- collecting and recording -----------------------------------------------------------------
    async def _collect_finished(self) -> None:
        while True:
            await self._runner.finished.wait()
            self._collect()

    def _collect(self) -> None:
        finished = self._runner.finished.collect()
        if not finished:
            return
        self._in_flight.unfinished -= len(finished)
        self._lifetime.finished(len(finished))
        for job, outcome in finished:
            self._ahead.saw(of_lane(job.queue)[0], outcome.run_seconds)
            if job.live.spark_session:
                self._spark.release(job.id)
            self._long_jobs.discard(job)
        self._parts.gates.ended([job for job, _ in finished])
        self._reporter.finished(finished)
        self._in_flight.changed.set()
        self._tasks.spawn(self._record(finished))

    async def _record(self, finished: list[FinishedJob]) -> None:
        try:
            if self._spark.measures_cost:
                finished = [await self._with_spark_cost(*one) for one in finished]
            await self._parts.recorder.record(finished)
        finally:
            for job, _ in finished:
                self._in_flight.forget(job)
        if not self._in_flight.jobs and self._reported_busy:
            self._reported_busy = False
            await self._reporter.send()

    async def _with_spark_cost(self, job: ClaimedJob, outcome: Outcome) -> FinishedJob:
        if not job.live.spark_session:
            return FinishedJob(job, outcome)
        cost = await asyncio.to_thread(self._spark.cost, job.token)
        return FinishedJob(job, msgspec.structs.replace(outcome, spark_cost=cost))

    # --- jobs that run for long -------------------------------------------------------------------
    def _watch_running_jobs(self) -> None:
        """Looks at the jobs that run once one may have taken longer than what may be claimed
        ahead."""
        if self._watch is None:
            delay = max(self._settings.jobs.claim_ahead_seconds, _LEAST_WATCH_SECONDS)
            self._watch = self._loop.call_later(delay, self._look_at_running_jobs)

    def _look_at_running_jobs(self) -> None:
        self._watch = None
        self._collect()  # the jobs that run do not delay the records of those that have ended
        self._hurry()
        limit = self._settings.jobs.claim_ahead_seconds
        for job in self._running.jobs:
            least = max(limit, _LONG_ADVANCE_SECONDS) if job.kind.kind else limit
            if job not in self._long_jobs and job.live.running_seconds() >= least:
                self._note_long(job)
        if self._in_flight.unfinished > len(self._long_jobs):
            self._watch_running_jobs()

    def _note_long(self, job: ClaimedJob) -> None:
        self._long_jobs.add(job)
        self._ahead.saw(of_lane(job.queue)[0], job.live.running_seconds())
        no_slot_ends_soon = len(self._long_jobs) >= self._parts.slots
        if no_slot_ends_soon and (behind := self._in_flight.take_back()):
            self._give_back(behind, "held behind a long job")
        if not self._reported_busy:
            self._reported_busy = True
            self._tasks.spawn(self._reporter.send())
        if job.timeout_seconds and job.live.begun_at is not None:
            left = job.live.begun_at + job.timeout_seconds - time.monotonic()
            end, why = self._parts.ending.end, "it timed out"
            self._loop.call_later(max(left, 0.0), end, job, TimedOut, why)

    def _give_back(self, jobs: list[ClaimedJob], why: str) -> None:
        self._tasks.spawn(self._in_flight.release(jobs, why))
