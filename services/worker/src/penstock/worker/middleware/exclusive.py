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
from contextlib import suppress

from penstock.bus.protocol import Bus, BusError, Headers
from penstock.config.topology import pools
from penstock.events.subjects import Subjects
from penstock.runtime import lease
from penstock.runtime.lease import Term
from penstock.runtime.workers.assignment import Assignment
from penstock.worker.running import watchdog
from penstock.worker.running.watchdog import Watchdog

log = logging.getLogger("penstock.worker")

_LATEST_SHARE = 0.9


class GuardedLease(lease.Lease):
    """A lease whose loss this process does not outlive while :attr:`dog` is armed."""

    def __init__(
        self,
        bus: Bus,
        stream: str,
        subject: str,
        holder: str,
        lease_seconds: float,
        dog: Watchdog,
        headers: Headers | None = None,
    ) -> None:
        super().__init__(
            bus, stream, subject, holder, lease_seconds, headers=headers, monotonic=watchdog.now
        )
        self.name, self.dog = subject, dog

    async def _stored(self, sequence: int, began: float) -> None:
        self.dog.arm(self.name, began + _LATEST_SHARE * self._lease_seconds)

    def calm(self) -> None:
        """Nothing runs under it any more."""
        self.dog.disarm(self.name)


def exclusively(
    bus: Bus,
    assignment: Assignment,
    changed: Callable[[], None],
    yielded: Callable[[], Awaitable[None]],
) -> Exclusive | None:
    """The hold of a worker whose pool is exclusive; see :class:`Exclusive`."""
    settings = assignment.settings
    if pools(settings)[assignment.pool].kind != "exclusive":
        return None
    return Exclusive(
        bus,
        Subjects(settings.prefix),
        assignment.queues[0],
        assignment.worker,
        settings.jobs.exclusive_lease_seconds,
        changed=changed,
        yielded=yielded,
    )


class Exclusive:
    """One worker's hold of an exclusive queue.

    Args:
        yielded: called when the lease is lost; returns when no job of the queue runs here.
        changed: called when the lease was won.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        queue: str,
        holder: str,
        lease_seconds: float,
        *,
        changed: Callable[[], None],
        yielded: Callable[[], Awaitable[None]],
    ) -> None:
        subject = subjects.state("exclusive", queue)
        self._lease = GuardedLease(
            bus, subjects.state_stream, subject, holder, lease_seconds, Watchdog()
        )
        self._queue, self._changed, self._yielded = queue, changed, yielded
        self._term: Term | None = None

    @property
    def held(self) -> bool:
        """Whether a job may be claimed or begun now."""
        return self._term is not None and self._term.held

    async def run(self) -> None:
        """Wins the lease, keeps it, stops what runs when it is lost; again and again."""
        watching = asyncio.create_task(self._watch())
        try:
            while True:
                self._term = await self._lease.campaign()
                log.info("queue %s is ours alone, token %d", self._queue, self._term.epoch)
                self._changed()
                await self._lease.keep(self._term)
                await self._yielded()
                self._lease.calm()
        finally:
            watching.cancel()

    async def _watch(self) -> None:
        """Courtesy: a release is noticed at once, else when the lease has passed."""
        with suppress(BusError):
            await self._lease.watch()

    async def release(self) -> None:
        """Lets a successor begin at once. Only when nothing of the queue runs here."""
        self._lease.calm()
        if self._term is not None:
            await self._lease.release(self._term)
