"""Snapshots and decisions as the numbers that are scraped, by whichever process publishes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Protocol

from penstock.events.scaling import Reason
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, Quantiles
from penstock.telemetry import metrics
from penstock.telemetry.meters import Reading

_CAPACITY_STEPS = frozenset({"capacity", "fair-share"})


class Decided(Protocol):
    """A decision, in the decider or as the event that it became."""

    @property
    def pool(self) -> str: ...
    @property
    def current(self) -> int: ...
    @property
    def target(self) -> int: ...
    @property
    def reasons(self) -> Sequence[Reason]: ...
    @property
    def predicted_pickup_seconds(self) -> float | None: ...


def of_pool(snapshot: PoolSnapshot, now: float, *, is_elsewhere: bool = False) -> Iterator[Reading]:
    """A pool as it was measured last.

    Args:
        now: POSIX seconds.
        is_elsewhere: its queues are in another system.
    """
    pool = (snapshot.pool,)
    measured = {
        metrics.WAITING: snapshot.waiting,
        metrics.DELAYED: snapshot.delayed,
        metrics.RUNNING: snapshot.running,
        metrics.OLDEST: snapshot.oldest_waiting_seconds,
        metrics.ARRIVALS: snapshot.arrival_per_second,
        metrics.THROUGHPUT: snapshot.throughput_per_second,
        metrics.READY: snapshot.workers_ready,
        metrics.IDLE: snapshot.workers_idle,
        metrics.SLOTS: snapshot.slots_ready if snapshot.slots > 1 else None,
        metrics.SLOTS_IDLE: snapshot.slots_idle if snapshot.slots > 1 else None,
        metrics.MEASURED_AGE: max(now - snapshot.at.timestamp(), 0.0) + snapshot.queue_age_seconds,
    }
    if is_elsewhere:  # whether messages of another system failed is not known
        measured[metrics.STUCK] = snapshot.stuck
    elif snapshot.ended:
        measured[metrics.FAILED_SHARE] = snapshot.ended.failed_share
    yield from (
        Reading(metric, value, pool) for metric, value in measured.items() if value is not None
    )
    for field in snapshot.estimated:
        yield Reading(metrics.ESTIMATED, 1, (*pool, field))
    if forecast := snapshot.forecast:
        yield Reading(metrics.FORECAST, forecast.mean_per_second, (*pool, "mean"))
        yield Reading(metrics.FORECAST, forecast.p95_per_second, (*pool, "p95"))
    yield from _quantiles(snapshot.pool, "pickup", snapshot.pickup)
    yield from _quantiles(snapshot.pool, "run", snapshot.service)
    yield from _quantiles(snapshot.pool, "spawn", snapshot.spawn)
    if budget := snapshot.budget:
        yield Reading(metrics.WAITING_LATE, budget.waiting_late, pool)
        yield Reading(metrics.BUDGET, budget.remaining_share, pool)
        yield Reading(metrics.BURN_RATE, budget.burn_rate_short, (*pool, "short"))
        yield Reading(metrics.BURN_RATE, budget.burn_rate_long, (*pool, "long"))


def of_host(snapshot: HostSnapshot) -> Iterator[Reading]:
    """A host and its workers as they were measured last."""
    host = (snapshot.host,)
    yield Reading(metrics.HOST_CORES, snapshot.cpu_cores, host)
    yield Reading(metrics.HOST_BUSY, snapshot.cpu_busy_cores, host)
    yield Reading(metrics.HOST_OWN, snapshot.own_cpu_busy_cores, host)
    yield Reading(metrics.HOST_MEMORY, snapshot.memory_bytes, host)
    yield Reading(metrics.HOST_MEMORY_USED, snapshot.memory_used_bytes, host)
    yield Reading(metrics.HOST_MEMORY_OWN, snapshot.own_memory_bytes, host)
    for pool, workers in snapshot.pools.items():
        where = (snapshot.host, pool)
        for state in ("planned", "started", "ready", "draining"):
            yield Reading(metrics.HOST_WORKERS, getattr(workers, state), (*where, state))
        yield Reading(metrics.CRASH_LOOP, float(workers.crash_loop), where)


def of_decision(decision: Decided) -> Iterator[Reading]:
    """The last decision of a pool."""
    pool = (decision.pool,)
    yield Reading(metrics.CURRENT, decision.current, pool)
    yield Reading(metrics.TARGET, decision.target, pool)
    yield Reading(metrics.SHORT, short_workers(decision.reasons), pool)
    if decision.reasons:
        yield Reading(metrics.WANTED, decision.reasons[0].workers, pool)
    if decision.predicted_pickup_seconds is not None:
        yield Reading(metrics.PREDICTED, decision.predicted_pickup_seconds, pool)


def short_workers(reasons: Sequence[Reason]) -> int:
    """Desired workers that the hosts have no capacity for."""
    steps = pairwise(reasons)
    lost = (
        before.workers - after.workers for before, after in steps if after.step in _CAPACITY_STEPS
    )
    return sum(max(workers, 0) for workers in lost)


def _quantiles(pool: str, of: str, quantiles: Quantiles | None) -> Iterator[Reading]:
    if quantiles:
        yield Reading(metrics.QUANTILE, quantiles.p50_seconds, (pool, of, "0.5"))
        yield Reading(metrics.QUANTILE, quantiles.p95_seconds, (pool, of, "0.95"))
        yield Reading(metrics.QUANTILE, quantiles.p99_seconds, (pool, of, "0.99"))
