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
from penstock.runtime.lease import Term
from penstock.runtime.tasks import Tasks
from penstock.worker.claiming.claimed_job import ClaimedJob
from penstock.worker.middleware.guarded_lease import GuardedLease
from penstock.worker.running.watchdog import Watchdog

_WAIT_SECONDS = 10.0
_AWAY_SECONDS = 1.0
_CLOSE_SECONDS = 2.0
_MOST_LEASES = 10_000
_KEPT_SECONDS = 3600
"""Records of keys that nobody uses any more go by themselves; far longer than any lease."""


@dataclass(slots=True, eq=False)
class _Slot:
    lease: GuardedLease
    term: Term
    job: ClaimedJob
    keeping: asyncio.Task[None] | None = None
    left: bool = False


class Semaphores:
    """What this worker holds. Asked in the job thread.

    Args:
        holder: unique among workers. lost: called when a running job has lost its place.
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
        self._bus, self._subjects, self._holder = bus, subjects, holder
        self._lease_seconds, self._loop, self._lost = lease_seconds, loop, lost
        self._dog: Watchdog | None = None
        self._leases: OrderedDict[str, GuardedLease] = OrderedDict()
        self._held: set[_Slot] = set()
        self._tasks = Tasks()

    @contextmanager
    def gate(
        self, rule: WithoutOverlapping, name: str, key: str, job: ClaimedJob
    ) -> Iterator[None]:
        """Holds a place. Raises Defer or Skip when there is none."""
        asked = asyncio.run_coroutine_threadsafe(self._take(rule, name, key, job), self._loop)
        try:
            place = asked.result(_WAIT_SECONDS)
        except BaseException as error:
            asked.add_done_callback(self._give_up)  # it may still be taken
            if isinstance(error, (BusError, TimeoutError)):
                raise Defer(_AWAY_SECONDS, f"no place without a broker: {error}") from error
            raise
        if place is None:
            raise _refused(rule, key)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._leave, place)

    # --- in the loop ------------------------------------------------------------------------------
    async def _take(
        self, rule: WithoutOverlapping, name: str, key: str, job: ClaimedJob
    ) -> _Slot | None:
        numbers = random.sample(range(rule.limit), rule.limit)
        for number in numbers:
            lease = self._lease(name_of(name, key, str(number)))
            if term := await lease.attempt():
                place = _Slot(lease, term, job)
                self._held.add(place)
                place.keeping = self._tasks.spawn(self._keep(place))
                return place
        return None

    def _lease(self, token: str) -> GuardedLease:
        """Remembered: one that nobody renews is free a whole lease after it was first seen."""
        if token not in self._leases:
            self._dog = self._dog or Watchdog()
            self._leases[token] = GuardedLease(
                self._bus,
                self._subjects.keys_stream,
                self._subjects.key("place", token),
                self._holder,
                self._lease_seconds,
                self._dog,
                {"Nats-TTL": f"{_KEPT_SECONDS}s"},
            )
        self._leases.move_to_end(token)
        if len(self._leases) > _MOST_LEASES:
            self._leases.popitem(last=False)
        return self._leases[token]

    async def _keep(self, place: _Slot) -> None:
        await place.lease.keep(place.term)
        if not place.left:
            self._lost(place.job, "its place among those of its key was lost")

    def _give_up(self, asked: Future[_Slot | None]) -> None:
        if not asked.cancelled() and not asked.exception() and (place := asked.result()):
            self._loop.call_soon_threadsafe(self._leave, place)

    def leave_all(self, jobs: Sequence[ClaimedJob]) -> None:
        """Of jobs that have ended."""
        for place in tuple(self._held):
            if place.job in jobs:
                self._leave(place)

    async def close(self) -> None:
        """Lets heirs begin at once."""
        await self._tasks.wait(_CLOSE_SECONDS)

    def _leave(self, place: _Slot) -> None:
        if place.left:
            return
        self._held.discard(place)
        place.left = True
        place.lease.calm()
        self._tasks.spawn(self._release(place))

    async def _release(self, place: _Slot) -> None:
        if place.keeping is not None:
            place.keeping.cancel()
            await asyncio.wait([place.keeping])
        await place.lease.release(place.term)


def _refused(rule: WithoutOverlapping, key: str) -> Defer | Skip:
    shown = f" of {key[:100]!r}" if key else ""
    if rule.otherwise == "skip":
        return Skip(f"another job{shown} runs")
    later = rule.defer_seconds * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
    return Defer(later, f"waits for another job{shown}")
