"""Rules of other systems, each as its maker defines it, to compare strategies with.

All of them look as often as we do, which is oftener than they do at home: rules are compared here,
not polling intervals. Those that live in a Kubernetes autoscaler keep its stabilisation window.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from penstock.decider.simulator.model.controller import Look, Plan
from penstock.decider.simulator.model.fleet import IDLE
from penstock.decider.simulator.model.meter import Meter
from penstock.measuring.assumed import UNKNOWN_JOB_SECONDS


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """The inputs of a rule."""

    now: float
    waiting: int
    running: int
    planned: int
    job_seconds: Callable[[], float]
    arrival_per_second: Callable[[], float]
    idle_since: Callable[[float], int]
    """Workers that have been idle since then or longer."""


class Rule(Protocol):
    """A number of workers from what is seen; may keep what it needs between looks."""

    def workers(self, view: PoolView) -> float: ...


class Ruled:
    """A rule as a controller: bounds, and a stabilisation window for steps down.

    Args:
        stable_seconds: the highest recommendation of this time counts (as the Kubernetes
            horizontal pod autoscaler does; 300 is its default).
    """

    def __init__(
        self, rule: Rule, host: str, least: int, most: int, stable_seconds: float = 0.0
    ) -> None:
        self._rule, self._host, self._least, self._most = rule, host, least, most
        self._stable_seconds = stable_seconds
        self._highest: deque[tuple[float, int]] = deque()
        self._planned = 0

    def plan(self, look: Look) -> Plan | None:
        wanted = self._rule.workers(_sight(look, self._planned))
        wanted = min(max(math.ceil(wanted - 1e-9), self._least), self._most)
        self._planned = self._stable(wanted, look.now)
        return {self._host: self._planned}

    def _stable(self, wanted: int, now: float) -> int:
        """The maximum over the window, by a queue of falling values."""
        while self._highest and self._highest[-1][1] <= wanted:
            self._highest.pop()
        self._highest.append((now, wanted))
        while self._highest[0][0] < now - self._stable_seconds:
            self._highest.popleft()
        return self._highest[0][1]


def _sight(look: Look, planned: int) -> PoolView:
    meter, fleet, now = look.meter, look.fleet, look.now

    def job_seconds() -> float:
        return _job_seconds(meter, now)

    def idle_since(moment: float) -> int:
        return sum(worker.phase == IDLE and worker.since <= moment for worker in fleet.active())

    return PoolView(
        now=now,
        waiting=meter.waiting,
        running=sum(1 for _ in fleet.busy()),
        planned=planned,
        job_seconds=job_seconds,
        arrival_per_second=meter.arrival_per_second,
        idle_since=idle_since,
    )


def _job_seconds(meter: Meter, now: float) -> float:
    measured = meter.service(now)
    return measured.mean_seconds if measured else UNKNOWN_JOB_SECONDS


class Constant(msgspec.Struct, frozen=True):
    """Always the same."""

    count: int

    def workers(self, view: PoolView) -> float:
        return self.count


class QueueLength(msgspec.Struct, frozen=True):
    """KEDA's NATS JetStream scaler: messages pending or not acknowledged, over a threshold."""

    per_worker: float

    def workers(self, view: PoolView) -> float:
        return (view.waiting + view.running) / self.per_worker


class Utilisation:
    """The horizontal pod autoscaler: planned x utilisation / target, left alone within a tenth.

    Utilisation is the mean over the last 15 s, as its metrics server reports it; it cannot start
    from nothing.
    """

    _WINDOW_SECONDS = 15.0
    _TOLERANCE = 0.1

    def __init__(self, target: float) -> None:
        self._target = target
        self._busy: deque[tuple[float, int]] = deque()

    def workers(self, view: PoolView) -> float:
        self._busy.append((view.now, view.running))
        while self._busy[0][0] < view.now - self._WINDOW_SECONDS:
            self._busy.popleft()
        planned = max(view.planned, 1)
        busy = sum(count for _, count in self._busy) / len(self._busy)
        ratio = busy / planned / self._target
        return planned if abs(ratio - 1) <= self._TOLERANCE else max(planned * ratio, 1.0)


class BacklogPerInstance(msgspec.Struct, frozen=True):
    """AWS target tracking on a queue: each instance may have as much backlog as it clears in time.

    (Amazon EC2 Auto Scaling user guide, *Scaling policy based on Amazon SQS*.)
    """

    sla_seconds: float

    def workers(self, view: PoolView) -> float:
        return max(view.waiting * view.job_seconds() / self.sla_seconds, 1.0)


class CatchUp(msgspec.Struct, frozen=True):
    """Flink's autoscaler: capacity for the arrivals and for the backlog within a catch-up time.

    Target utilisation 0.7 with its default boundary 0.3 on both sides, within which it stays.
    """

    catch_up_seconds: float
    target: float = 0.7
    boundary: float = 0.3

    def workers(self, view: PoolView) -> float:
        rate = view.arrival_per_second() + view.waiting / self.catch_up_seconds
        load = rate * view.job_seconds()
        enough, too_many = (
            load / (self.target + self.boundary),
            load / (self.target - self.boundary),
        )
        return view.planned if enough <= view.planned <= too_many else load / self.target


class TimeToClear:
    """Laravel Horizon's `auto` balancing of one queue by time.

    One queue's share of the time to clear all queues is one whenever anything waits: then it goes
    to the maximum, else to the minimum, by one process (`balanceMaxShift`) each 3 s
    (`balanceCooldown`).
    """

    _COOLDOWN_SECONDS = 3.0

    def __init__(self, least: int, most: int) -> None:
        self._least, self._most = least, most
        self._shift_at = 0.0

    def workers(self, view: PoolView) -> float:
        if view.now < self._shift_at:
            return view.planned
        self._shift_at = view.now + self._COOLDOWN_SECONDS
        step = 1 if view.waiting * view.job_seconds() > 0 else -1
        return min(max(view.planned + step, self._least, 1), self._most)


class Doubling:
    """Spark's dynamic allocation, one task an executor: while a backlog lasts, 1, 2, 4, ... more
    each second, up to the tasks there are; an executor that was idle for 60 s goes."""

    _BACKLOG_SECONDS = 1.0
    _IDLE_SECONDS = 60.0

    def __init__(self) -> None:
        self._add_at = math.inf
        self._batch = 1

    def workers(self, view: PoolView) -> float:
        idle = view.idle_since(view.now - self._IDLE_SECONDS)
        if not view.waiting:
            self._add_at, self._batch = math.inf, 1
            return view.planned - idle
        if self._add_at == math.inf:
            self._add_at = view.now + self._BACKLOG_SECONDS
        if view.now < self._add_at:
            return view.planned
        self._add_at = view.now + self._BACKLOG_SECONDS
        needed = max(view.waiting + view.running, view.planned)
        target = min(view.planned + self._batch, needed)
        self._batch = self._batch * 2 if target - view.planned == self._batch else 1
        return target
