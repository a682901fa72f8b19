"""An exclusive queue: its jobs are claimed and run only under a lease, and never beyond it.

::

    0        renewed: the record is stored after this
    2/3      not renewed since: nothing is claimed, the running job is interrupted
    9/10     a job still runs: the kernel ends this process, stopped or not
    1        successors, who saw the record later than it was sent, may take over

The lease is kept while the worker lives, so that a job costs nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.bus.protocol import Bus
from penstock.config.topology import pools
from penstock.events.subjects import Subjects
from penstock.runtime.lease import Term
from penstock.runtime.workers.assignment import Assignment
from penstock.worker.claiming.in_flight import InFlightJobs
from penstock.worker.middleware.guarded_lease import LeaseGuard
from penstock.worker.state import WorkerState

log = logging.getLogger("penstock.worker")


def exclusively(
    bus: Bus, assignment: Assignment, in_flight: InFlightJobs, state: WorkerState
) -> Exclusive | None:
    """The hold of a worker whose pool is exclusive; see :class:`Exclusive`."""

    async def stop_jobs() -> None:
        state.withdraw_request()
        await in_flight.surrender_all("the lease of its queue was lost")

    settings = assignment.settings
    if pools(settings)[assignment.pool].kind != "exclusive":
        return None
    return Exclusive(
        bus,
        Subjects(settings.prefix),
        assignment.queues[0],
        assignment.worker,
        settings.jobs.exclusive_lease_seconds,
        won=in_flight.changed.set,
        lost=stop_jobs,
    )


class Exclusive:
    """One worker's hold of an exclusive queue.

    Args:
        won: called when the lease was won.
        lost: called when the lease is lost; returns when no job of the queue runs here.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        queue: str,
        holder: str,
        lease_seconds: float,
        *,
        won: Callable[[], None],
        lost: Callable[[], Awaitable[None]],
    ) -> None:
        subject = subjects.state("exclusive", queue)
        self._guard = LeaseGuard(bus, holder, lease_seconds)
        self._lease = self._guard.lease(subjects.state_stream, subject)
        self._queue, self._won, self._lost = queue, won, lost
        self._term: Term | None = None

    @property
    def held(self) -> bool:
        """Whether a job may be claimed or begun now."""
        return self._term is not None and self._term.held

    async def run(self) -> None:
        """Wins the lease, keeps it, stops what runs when it is lost; again and again."""
        watching = asyncio.create_task(self._lease.watch())
        try:
            while True:
                self._term = await self._lease.campaign()
                log.info(
                    "exclusive queue %s: the lease is won, token %d", self._queue, self._term.epoch
                )
                self._won()
                await self._lease.keep(self._term)
                await self._lost()
                self._guard.disarm(self._lease)
        finally:
            watching.cancel()

    async def release(self) -> None:
        """Lets a successor begin at once. Only when nothing of the queue runs here."""
        self._guard.disarm(self._lease)
        if self._term is not None:
            await self._lease.release(self._term)
