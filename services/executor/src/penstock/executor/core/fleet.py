"""The state of an executor: plan, workers, troubles. A value; changes make another."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from penstock.events.snapshot import PoolWorkers
from penstock.executor.core.backoff import Trouble
from penstock.executor.core.worker import Phase, Worker

START_SLOT_SECONDS = 10.0
"""A start that takes longer no longer keeps others from starting."""

REPLACED_SHARE = 0.25
"""So much of a pool's plan, but one at least, is started beside outdated workers at a time."""

FRESH_SECONDS = 5.0
"""A worker silent for longer is not counted as ready."""


class ForeignLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for the processes of one pool of another system.

    Attributes:
        drain_seconds: from being asked to end to being made to.
        ready_seconds: one that is not ready after this is replaced.
    """

    drain_seconds: float
    ready_seconds: float


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What this host's settings allow.

    Attributes:
        pools: names of the pools it knows; workers of others cannot be started here.
        parallel_starts: workers starting at the same time.
        max_workers: over all pools; 0 for none.
        costly: pools whose workers keep a core busy while they start.
        costly_starts: so many of them at the same time.
        drain_seconds: from being asked to end to being killed.
        silent_seconds: a ready worker that reports nothing for so long is replaced.
        start_seconds: one that is not ready after this is replaced.
        foreign: by pool, of those whose workers are processes of another system.
    """

    pools: frozenset[str]
    parallel_starts: int
    max_workers: int = 0
    costly: frozenset[str] = frozenset()
    costly_starts: int = 0
    drain_seconds: float = 30.0
    silent_seconds: float = 30.0
    start_seconds: float = 60.0
    foreign: dict[str, ForeignLimits] = {}


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The last command obeyed. ``at``: when it arrived, monotonic seconds."""

    epoch: int
    version: int
    pools: dict[str, int]
    at: float

    @property
    def order(self) -> tuple[int, int]:
        return (self.epoch, self.version)


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """One host's workers, and what is wanted of them.

    Attributes:
        host: its name.
        instance: short random text of this executor's life; begins worker names.
        plan: None until a first command was obeyed: then no worker is started or ended.
        owed: by pool, how many workers left unasked and were not replaced yet.
        numbered: how many names were given out.
        bus_up_since: when the broker began to answer; None while it does not.
        ending: this executor was asked to end.
        paused: it starts no workers, and the living ones take no jobs.
    """

    host: str
    instance: str
    limits: Limits
    plan: Plan | None = None
    workers: dict[str, Worker] = {}
    troubles: dict[str, Trouble] = {}
    owed: dict[str, int] = {}
    numbered: int = 0
    bus_up_since: float | None = None
    ending: bool = False
    paused: bool = False

    def planned(self, pool: str) -> int:
        return self.plan.pools.get(pool, 0) if self.plan and not self.ending else 0

    def of(self, pool: str) -> list[Worker]:
        """A pool's workers that count against its plan."""
        return [w for w in self.workers.values() if w.pool == pool and w.active]

    def outdated(self, pool: str) -> list[Worker]:
        """Those of a pool's workers that count against its plan and are to be replaced."""
        return [worker for worker in self.of(pool) if worker.outdated]

    def missing(self, pool: str) -> int:
        """How many more workers a pool needs; while its workers are replaced, some beside them."""
        planned, active = self.planned(pool), len(self.of(pool))
        if not (outdated := len(self.outdated(pool))):
            return max(0, planned - active)
        beside = max(1, int(planned * REPLACED_SHARE))
        return max(0, min(planned - (active - outdated), planned + beside - active))

    def job_workers(self, *workers: Worker) -> list[Worker]:
        """Those of ``workers``, by default of all, that take jobs.

        Spark's own and those of other systems do not, and would not survive signals about them.
        """
        return [
            worker
            for worker in workers or self.workers.values()
            if worker.pool not in self.limits.costly and not worker.is_foreign
        ]

    def replaceable(self) -> list[Worker]:
        """The workers that a reload may replace: all but Spark's own, which run no job code."""
        return [
            worker
            for worker in self.workers.values()
            if worker.is_foreign or worker.pool not in self.limits.costly
        ]

    def starting(self, now: float) -> list[Worker]:
        """The workers that take up a start slot."""
        return [
            worker
            for worker in self.workers.values()
            if worker.phase is Phase.STARTING
            and worker.cause != "adopted"
            and now - worker.requested_at < START_SLOT_SECONDS
        ]

    def pools(self) -> list[str]:
        planned = self.plan.pools if self.plan else {}
        return sorted({*planned, *(worker.pool for worker in self.workers.values())})

    def having(self, *workers: Worker) -> Fleet:
        """With these workers as they are now."""
        return replace(self, workers={**self.workers, **{w.name: w for w in workers}})

    def without(self, name: str) -> Fleet:
        return replace(self, workers={k: w for k, w in self.workers.items() if k != name})

    def owing(self, pool: str, change: int) -> Fleet:
        return replace(self, owed={**self.owed, pool: max(0, self.owed.get(pool, 0) + change)})

    def in_trouble(self, pool: str, trouble: Trouble | None) -> Fleet:
        others = {name: other for name, other in self.troubles.items() if name != pool}
        return replace(self, troubles={**others, pool: trouble} if trouble else others)


def by_pool(fleet: Fleet, now: float) -> dict[str, PoolWorkers]:
    """The three sets of each pool, as `HostSnapshot` reports them."""
    return {pool: _sets(fleet, pool, now) for pool in fleet.pools()}


def deadlines(fleet: Fleet) -> Iterator[float]:
    """When something is due without any new fact, monotonic seconds."""
    for worker in fleet.workers.values():
        if worker.drain_deadline is not None and not worker.killed:
            yield worker.drain_deadline
    for pool, trouble in fleet.troubles.items():
        if fleet.missing(pool):
            yield trouble.until


def _sets(fleet: Fleet, pool: str, now: float) -> PoolWorkers:
    trouble = fleet.troubles.get(pool)
    workers = [worker for worker in fleet.workers.values() if worker.pool == pool]
    return PoolWorkers(
        planned=fleet.planned(pool),
        started=sum(w.active and w.pid is not None for w in workers),
        ready=sum(_could_take_a_job(w, now) for w in workers),
        draining=sum(w.phase is Phase.DRAINING for w in workers),
        crash_loop=bool(trouble and trouble.is_loop),
        outdated=sum(w.outdated for w in workers),
        names=tuple(sorted(worker.name for worker in workers if worker.pid is not None)),
        # also of a worker whose report is late: jobs that only it knows are not to wait longer
        builds=tuple(sorted({w.build for w in workers if w.build and w.ready and not w.paused})),
    )


def _could_take_a_job(worker: Worker, now: float) -> bool:
    reported_at = now if worker.reported_at is None else worker.reported_at
    return worker.ready and not worker.paused and now - reported_at < FRESH_SECONDS
