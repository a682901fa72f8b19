"""Semaphores: how many jobs of a key may run at the same time; one guarded lease for each slot."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.bus.protocol import Bus, BusError
from penstock.events.subjects import Subjects
from penstock.jobs.errors import Defer, Skip
from penstock.jobs.middleware import WithoutOverlapping
from penstock.jobs.middleware import token as name_of
from penstock.runtime.lease import Lease, Term
from penstock.runtime.tasks import Tasks
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.middleware.guarded_lease import LeaseGuard

_WAIT_SECONDS = 10.0
_AWAY_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_MOST_LEASES = 10_000
_KEPT_SECONDS = 3600
"""The broker removes records of unused keys after this; far longer than any lease."""


@dataclass(slots=True, eq=False)
class _Slot:
    token: str
    lease: Lease
    term: Term
    job: ClaimedJob
    keeping: asyncio.Task[None] | None = None
    left: bool = False


class Semaphores:
    """The slots that this worker holds. Used in the threads of jobs.

    Args:
        holder: unique among workers.
        lost: called when a running job has lost its slot.
    """

    def __init__(
        self,
        bus: Bus,
        subjects: Subjects,
        holder: str,
        lease_seconds: float,
        loop: asyncio.AbstractEventLoop,
        lost: Callable[[ClaimedJob, str], None],
    ) -> None:
        self._subjects, self._loop, self._lost = subjects, loop, lost
        self._guard = LeaseGuard(bus, holder, lease_seconds)
        self._leases: OrderedDict[str, Lease] = OrderedDict()
        self._held: set[_Slot] = set()
        self._taken: set[str] = set()
        self._releasing: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()

    @contextmanager
    def gate(
        self, rule: WithoutOverlapping, name: str, key: str, job: ClaimedJob
    ) -> Iterator[None]:
        """Holds a slot while the block runs. Raises Defer or Skip when there is none."""
        taking = asyncio.run_coroutine_threadsafe(self._take(rule, name, key, job), self._loop)
        try:
            slot = taking.result(_WAIT_SECONDS)
        except BaseException as error:
            taking.add_done_callback(self._give_up)  # it may still be taken
            if isinstance(error, (BusError, TimeoutError)):
                raise Defer(_AWAY_SECONDS, f"the slot needs the broker: {error}") from error
            raise
        if slot is None:
            raise _refused(rule, key)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._leave, slot)

    # --- in the loop ------------------------------------------------------------------------------
    async def _take(
        self, rule: WithoutOverlapping, name: str, key: str, job: ClaimedJob
    ) -> _Slot | None:
        numbers = random.sample(range(rule.limit), rule.limit)
        for number in numbers:
            token = name_of(name, key, str(number))
            if (releasing := self._releasing.get(token)) is not None:
                await asyncio.wait([releasing])
            if (
                token in self._taken
            ):  # by a job beside this one: the lease is this process's already
                continue
            self._taken.add(token)
            lease, term = self._lease(token), None
            try:
                term = await lease.attempt()
            finally:
                if term is None:
                    self._taken.discard(token)
            if term is not None:
                slot = _Slot(token, lease, term, job)
                self._held.add(slot)
                slot.keeping = self._tasks.spawn(self._keep(slot))
                return slot
        return None

    def _lease(self, token: str) -> Lease:
        """Remembered: one that is not renewed is free a whole lease after it was first seen."""
        if token not in self._leases:
            self._leases[token] = self._guard.lease(
                self._subjects.keys_stream,
                self._subjects.key("place", token),
                {"Nats-TTL": f"{_KEPT_SECONDS}s"},
            )
        self._leases.move_to_end(token)
        if len(self._leases) > _MOST_LEASES:
            self._leases.popitem(last=False)
        return self._leases[token]

    async def _keep(self, slot: _Slot) -> None:
        await slot.lease.keep(slot.term)
        if not slot.left:
            self._lost(slot.job, "its semaphore slot was lost")

    def _give_up(self, taking: Future[_Slot | None]) -> None:
        if not taking.cancelled() and not taking.exception() and (slot := taking.result()):
            self._loop.call_soon_threadsafe(self._leave, slot)

    def leave_all(self, jobs: Sequence[ClaimedJob]) -> None:
        """Of jobs that have ended."""
        for slot in tuple(self._held):
            if slot.job in jobs:
                self._leave(slot)

    async def close(self) -> None:
        """Lets successors begin at once."""
        await self._tasks.wait(_CLOSE_SECONDS)

    def _leave(self, slot: _Slot) -> None:
        if slot.left:
            return
        self._held.discard(slot)
        slot.left = True
        self._guard.disarm(slot.lease)
        self._releasing[slot.token] = self._tasks.spawn(self._release(slot))

    async def _release(self, slot: _Slot) -> None:
        try:
            if slot.keeping is not None:
                slot.keeping.cancel()
                await asyncio.wait([slot.keeping])
            await slot.lease.release(slot.term)
        finally:
            self._taken.discard(slot.token)
            self._releasing.pop(slot.token, None)


def _refused(rule: WithoutOverlapping, key: str) -> Defer | Skip:
    shown = f" of {key[:100]!r}" if key else ""
    if rule.otherwise == "skip":
        return Skip(f"another job{shown} runs")
    later = rule.defer_seconds * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
    return Defer(later, f"waits for another job{shown}")
