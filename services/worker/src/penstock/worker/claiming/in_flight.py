"""The jobs that a worker holds: what runs, what waits behind it, what ended and is unrecorded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from penstock.bus.protocol import BusError, Delivery
from penstock.jobs.queues import queue_messages
from penstock.runtime.tasks import within
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.claiming.claims import Claims
from penstock.worker.running.runner import JobRunner

log = logging.getLogger("penstock.worker")

_ENDED_POLL_SECONDS = 0.01


class InFlightJobs:
    """The worker's register of claimed jobs.

    Args:
        changed: set whenever further jobs may be claimed, or none is left.

    Attributes:
        jobs: by id.
        unfinished: how many of them wait or run.
    """

    def __init__(self, claims: Claims, runner: JobRunner, changed: asyncio.Event) -> None:
        self._claims, self._runner, self.changed = claims, runner, changed
        self.jobs: dict[str, ClaimedJob] = {}
        self.unfinished = 0

    def begin(self, won: list[ClaimedJob]) -> None:
        """Hands jobs to the runner."""
        self.unfinished += len(won)
        self._runner.add(won)

    def hold(self, jobs: list[ClaimedJob]) -> None:
        """Counts jobs that are begun later, by :meth:`begin_held`."""
        self.unfinished += len(jobs)

    def begin_held(self, jobs: list[ClaimedJob]) -> None:
        """Hands held jobs to the runner, but for those that were lost meanwhile."""
        for job in jobs:
            if job.lost:
                self.unfinished -= 1
                self.forget(job)
        self._runner.add([job for job in jobs if not job.lost])

    async def release_held(self, jobs: list[ClaimedJob], reason: str) -> None:
        """Gives held jobs back."""
        self.unfinished -= len(jobs)
        await self.release(jobs, reason)

    def resume(self, delivery: Delivery) -> bool:
        """Whether this is a held job whose claim lapsed, while this process was frozen say."""
        job = self.jobs.get(delivery.headers.get(queue_messages.JOB, ""))
        if job is None or job.lost or job.delivery.sequence != delivery.sequence:
            return False
        job.delivery = delivery
        self._claims.claimed.hold(delivery.sequence, job.id, delivery.ack_subject)
        return True

    def take_back(self) -> list[ClaimedJob]:
        """The jobs not begun, which now never will be here."""
        behind = self._runner.take_back()
        self.unfinished -= len(behind)
        return behind

    def drop(self, job: ClaimedJob) -> bool:
        """Forgets a job that is another worker's now; False when it runs already."""
        if not self._runner.drop(job):
            return False
        self.unfinished -= 1
        self.forget(job)
        return True

    async def release(self, jobs: Sequence[ClaimedJob], reason: str) -> None:
        """Gives jobs back to their queues, as far as the broker can be reached."""
        for job in jobs:
            job.lost = True  # from here on; it may be delivered to us again
        if jobs:
            with suppress(BusError):
                await self._claims.release(jobs, reason)
        for job in jobs:
            self.forget(job)

    async def surrender_all(self, why: str) -> None:
        """Gives back what waits, interrupts what runs; returns when no job runs any more."""
        behind = self.take_back()
        for running in self._runner.running.jobs:
            self._runner.running.surrender(running, why)
        await self.release(behind, why)
        while self.unfinished:  # noqa: ASYNC110 - `changed` is cleared by the worker's claim loop
            await asyncio.sleep(_ENDED_POLL_SECONDS)

    def forget(self, job: ClaimedJob) -> None:
        if self.jobs.get(job.id) is job:
            del self.jobs[job.id]
            self._claims.claimed.settle(job.delivery.sequence)
        self.changed.set()

    async def settled(self, patience_seconds: float) -> None:
        """Returns when no job runs any more, however long that takes, and all ends are recorded.

        Args:
            patience_seconds: for the records. When the broker is away for longer, the jobs run
                again elsewhere.
        """
        while self.unfinished:
            self.changed.clear()
            await self.changed.wait()
        if not await within(patience_seconds, self._empty()):
            log.error("%d jobs ended and could not be recorded: no broker", len(self.jobs))

    async def _empty(self) -> None:
        while self.jobs:
            self.changed.clear()
            await self.changed.wait()
