"""The pool's measurements as the figures that `deadline` calculates with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from penstock.decider.core.pickup import held_up_seconds
from penstock.decider.core.strategies.deadline.memory import Past
from penstock.decider.core.strategies.deadline.poisson import normal_quantile
from penstock.decider.core.strategies.deadline.worker_groups import (
    Service,
    WorkerGroup,
    WorkerGroups,
)
from penstock.decider.core.strategy import StrategyInputs
from penstock.events.snapshot import Budget, PoolSnapshot, SpawnFit, WaitingJob
from penstock.measuring.assumed import UNKNOWN_JOB_SECONDS, UNKNOWN_SPAWN_SECONDS

LOOK_SECONDS = 1.05
"""From one look at a queue to the command after the next: a look each second, and deciding."""
_MOST_CV2 = 20.0
"""A larger variance is one monster among few samples."""
_MORE_CAREFUL = 0.5
"""With the whole error budget spent, promises are built on so much further standard deviations."""
_OVERDUE = 3.0
"""A worker that takes this many times longer than 95 of 100 to start is not counted on. While no
start was measured, it is expected to take as long again as it has so far."""
_SOON_SECONDS = 0.05
_SPOTS = 8
"""Positions of the queue that are looked at; between them nothing sudden happens."""
_SAME_SECONDS = 1e-6
"""Two waits that differ by less are one job's."""


class QueuePosition(msgspec.Struct, frozen=True, gc=False):
    """A job in the queue.

    Attributes:
        place: its place, the first being 1; between two jobs it is broken.
        seconds: from now until it is late.
        is_waiting: it is in the queue already; else it is one that may arrive.
        safety_share: of the pool's safety, with which it is judged.
    """

    place: float
    seconds: float
    is_waiting: bool = True
    safety_share: float = 1.0


class HeldUp(msgspec.Struct, frozen=True, gc=False):
    """Jobs that end slower than they run.

    Attributes:
        oldest_seconds: age of the oldest waiting job.
        per_second: jobs that end a second.
        seconds: a worker's time for each of those.
    """

    oldest_seconds: float
    per_second: float
    seconds: float


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one pool at one moment.

    Attributes:
        planned: workers that are commanded now.
        busy: workers that run a job.
        rate: jobs a second.
        service: how long jobs run.
        promise_seconds: a job starts within this.
        allowed_share: of jobs that may be late.
        safety: standard deviations below the mean on which promises are built.
        budget_used_share: of the error budget, 0 to 1.
        waiting: jobs in the queue.
        positions: the jobs that wait, oldest first.
        groups: the workers that exist, in the order in which they are kept.
        jobs: some of the waiting jobs by id, with how long they have waited until now.
        spawn: how long new ones take.
        spawn_measured: that was measured, not assumed.
        held_up: jobs are late although their run time would allow far more to end.
    """

    planned: int
    busy: int
    rate: float
    service: Service
    promise_seconds: float
    allowed_share: float
    safety: float
    budget_used_share: float
    waiting: int
    positions: tuple[QueuePosition, ...]
    groups: tuple[WorkerGroup, ...]
    spawn: SpawnFit
    spawn_measured: bool = True
    jobs: tuple[WaitingJob, ...] = ()
    held_up: HeldUp | None = None

    def name_of(self, waited_seconds: float) -> tuple[str, bool]:
        """The id of the looked-up job that has waited most nearly so long, and whether it is that
        very one; an empty id where none was looked up."""
        if not self.jobs:
            return "", False
        nearest = min(self.jobs, key=lambda job: abs(job.waited_seconds - waited_seconds))
        return nearest.id, abs(nearest.waited_seconds - waited_seconds) < _SAME_SECONDS

    @property
    def in_use(self) -> int:
        """Workers that run a job, or start while jobs wait."""
        if not self.waiting:
            return self.busy
        return self.planned - sum(
            group.workers for group in self.groups if group.ready_seconds == 0.0
        )

    @property
    def load(self) -> float:
        """Offered load in Erlang."""
        return self.rate * self.service.seconds

    @property
    def blind_seconds(self) -> float:
        """How much longer starting a worker takes than the promise allows; above 0 workers have to
        be there before their jobs."""
        return self.spawn.p95_seconds + 2 * LOOK_SECONDS - self.promise_seconds

    def spawn_seconds(self, together: float = 1.0) -> float:
        """Until a worker started now takes a job, if so many start."""
        contention = self.spawn.contention_seconds * max(together - 1.0, 0.0)
        return self.spawn.p95_seconds + contention + _SOON_SECONDS

    def worker_groups(
        self, together: float = 1.0, safety_share: float = 1.0, granted_seconds: float = 0.0
    ) -> WorkerGroups:
        """The workers that exist, and any number of new ones.

        Args:
            together: of these, so many that start.
            safety_share: of the pool's safety, on which promises are built.
            granted_seconds: that new ones have for further jobs in any case.
        """
        new_seconds, safety = self.spawn_seconds(together), self.safety * safety_share
        return WorkerGroups(self.groups, new_seconds, self.service, safety, granted_seconds)


def view_pool(inputs: StrategyInputs, past: Past) -> PoolView:
    """The inputs of a decision, with what was started when."""
    snapshot, profile = inputs.snapshot, inputs.pool.profile
    allowed = 1.0 - profile.quantile
    spawn, rate = spawn_of(snapshot), snapshot.arrival_per_second or 0.0
    busy, used = _busy(snapshot, inputs.current), _used_share(snapshot.budget)
    service = snapshot.service if snapshot.service and snapshot.service.count > 0 else None
    positions = _positions(snapshot, profile.sla_seconds, inputs.age_seconds)
    return PoolView(
        planned=inputs.current,
        busy=busy,
        rate=rate,
        service=Service(
            service.mean_seconds if service else UNKNOWN_JOB_SECONDS,
            min(service.cv2, _MOST_CV2) if service else 1.0,
        ),
        promise_seconds=profile.sla_seconds,
        allowed_share=allowed,
        safety=max(normal_quantile(profile.quantile), 0.0) * (1.0 + _MORE_CAREFUL * used),
        budget_used_share=used,
        waiting=snapshot.waiting,
        positions=positions,
        jobs=tuple(
            WaitingJob(job.id, job.waited_seconds + inputs.age_seconds)
            for job in snapshot.waiting_jobs
        ),
        groups=_groups(snapshot, inputs, past, busy, spawn),
        spawn=spawn,
        spawn_measured=spawn_measured(snapshot),
        held_up=_held_up(snapshot, profile.sla_seconds),
    )


def _held_up(snapshot: PoolSnapshot, promise_seconds: float) -> HeldUp | None:
    seconds = held_up_seconds(snapshot, promise_seconds)
    if seconds is None:
        return None
    oldest, done = snapshot.oldest_waiting_seconds or 0.0, snapshot.throughput_per_second or 0.0
    return HeldUp(oldest, done, seconds)


def spawn_of(snapshot: PoolSnapshot) -> SpawnFit:
    """The measured start times, else those of a plain worker on a busy host."""
    if snapshot.spawn_fit is not None:
        return snapshot.spawn_fit
    if snapshot.spawn is not None and snapshot.spawn.count:
        measured = snapshot.spawn
        return SpawnFit(
            mean_seconds=measured.mean_seconds,
            p95_seconds=measured.p95_seconds,
            p99_seconds=measured.p99_seconds,
        )
    unknown = UNKNOWN_SPAWN_SECONDS
    return SpawnFit(mean_seconds=unknown, p95_seconds=unknown, p99_seconds=unknown)


def spawn_measured(snapshot: PoolSnapshot) -> bool:
    """A worker's start was measured: else it is assumed."""
    return snapshot.spawn_fit is not None or snapshot.spawn is not None


def _used_share(budget: Budget | None) -> float:
    """Of the error budget."""
    return 0.0 if budget is None else min(max(1.0 - budget.remaining_share, 0.0), 1.0)


def _positions(
    snapshot: PoolSnapshot, promise: float, age_seconds: float
) -> tuple[QueuePosition, ...]:
    if not snapshot.waiting:
        return ()
    ages = snapshot.waiting_ages_seconds or (snapshot.oldest_waiting_seconds or 0.0, 0.0)
    return tuple(_waiting(snapshot.waiting, ages, promise - age_seconds))


def _busy(snapshot: PoolSnapshot, planned: int) -> int:
    """Workers with a job, by their own reports; by the claims where no worker reports."""
    if snapshot.worker_age_seconds is None:
        return min(snapshot.running, planned)
    return max(min(snapshot.workers_ready, planned) - snapshot.workers_idle, 0)


def _groups(
    snapshot: PoolSnapshot, inputs: StrategyInputs, past: Past, busy: int, spawn: SpawnFit
) -> tuple[WorkerGroup, ...]:
    """Busy, idle, starting, the soonest ready first: unneeded workers leave from the end."""
    # reports and plan are of different moments: no group exceeds the plan
    idle = min(snapshot.workers_idle, inputs.current - busy)
    starting = []
    for asked_at, count in past.starting(inputs.current - busy - idle):
        started = 0.0 if asked_at is None else inputs.now - asked_at
        left = spawn.p95_seconds + spawn.contention_seconds * (count - 1) - started
        if started > _OVERDUE * spawn.p95_seconds + 2 * LOOK_SECONDS:
            left = math.inf if spawn_measured(snapshot) else started
        starting.append((max(left, _SOON_SECONDS), count))
    groups = [WorkerGroup(busy, None), WorkerGroup(idle, 0.0)]
    groups += (WorkerGroup(count, seconds) for seconds, count in sorted(starting))
    return tuple(group for group in groups if group.workers > 0)


_Spot = tuple[float, int, int, float]
"""A share of the way through the queue, the indices of the ages around it, how far between."""


def _waiting(
    count: int, ages_seconds: Sequence[float], promise_seconds: float
) -> tuple[QueuePosition, ...]:
    """Some of the jobs that wait, oldest first.

    Args:
        count: jobs in the queue.
        ages_seconds: ages at evenly spaced places in it, the oldest first; two are enough.
        promise_seconds: a job starts within this.
    """
    behind, positions = count - 1, []
    for share, left, right, beyond_left in _spots(min(count, _SPOTS), len(ages_seconds)):
        older = ages_seconds[left]
        age = older + (ages_seconds[right] - older) * beyond_left
        positions.append(QueuePosition(1 + share * behind, promise_seconds - age))
    return tuple(positions)


@lru_cache(maxsize=256)
def _spots(spots: int, ages: int) -> tuple[_Spot, ...]:
    """The spots of a queue of which so many ages are known."""
    return tuple(_spot(spot / (spots - 1) if spots > 1 else 0.0, ages) for spot in range(spots))


def _spot(share: float, ages: int) -> _Spot:
    index = share * (ages - 1)
    left = min(int(index), ages - 1)
    return share, left, min(left + 1, ages - 1), index - left
