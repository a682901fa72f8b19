"""Rules about promises: whether workers can be there in time, and enough of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from penstock.config import Pool
from penstock.decider.core.lint.facts import Facts, seconds

TIGHT_SECONDS = 60.0
"""A promise below this is one that a person waits for."""
PROMISE_BLIND = frozenset(
    {"fixed", "schedule", "jobs_per_worker", "queue_size", "simple_rate", "throughput"}
)
"""Strategies that look neither at the promise nor at how long jobs wait."""
_ROUND_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1800, 3600)


def cold_start(facts: Facts) -> Iterator[str]:
    """A pool that may have no worker promises less than starting one takes."""
    for pool in facts.pools.values():
        profile, (spawn, source) = pool.profile, facts.spawn(pool)
        if pool.scalable and profile.min_workers == 0 and spawn >= profile.sla_seconds:
            yield (
                f"pools.{pool.name}: SLA {seconds(profile.sla_seconds)}, minimum 0, a worker needs "
                f"{seconds(spawn)} to start ({source}): keep 1 warm (min_workers = 1), or promise "
                f"{_next_round(spawn)} s"
            )


def slow_measuring(facts: Facts) -> Iterator[str]:
    """Measurements further apart than the promise are seen too late."""
    metrics = facts.settings.metrics
    for pool in facts.pools.values():
        if metrics.interval_seconds > pool.profile.sla_seconds:
            yield (
                f"pools.{pool.name}: SLA {seconds(pool.profile.sla_seconds)}, measured every "
                f"{seconds(metrics.interval_seconds)}: lower metrics.interval_seconds"
            )


def too_few_workers(facts: Facts) -> Iterator[str]:
    """The measured load needs more workers than there may be."""
    for pool in facts.pools.values():
        measured, most = facts.measured_pools.get(pool.name), _most(pool)
        if measured is None or measured.service is None or not measured.arrival_per_second:
            continue
        needed = measured.arrival_per_second * measured.service.mean_seconds
        if needed > most:
            yield (
                f"pools.{pool.name}: {measured.arrival_per_second:.3g} jobs/s of "
                f"{seconds(measured.service.mean_seconds)} keep {math.ceil(needed)} workers busy, "
                f"max_workers is {most}, so that the queue only grows: raise it"
            )


def strategy_ignores_promise(facts: Facts) -> Iterator[str]:
    """A tight promise with a strategy that does not look at it."""
    for pool in facts.pools.values():
        profile = pool.profile
        if (
            pool.scalable
            and profile.strategy in PROMISE_BLIND
            and profile.sla_seconds < TIGHT_SECONDS
        ):
            yield (
                f"pools.{pool.name}: strategy {profile.strategy} does not look at the promise "
                f"({profile.quantile:.0%} within {seconds(profile.sla_seconds)}): choose one that "
                "does, or promise less"
            )


def _most(pool: Pool) -> int:
    return pool.profile.max_workers if pool.scalable else pool.profile.min_workers


def _next_round(above: float) -> float:
    """A round promise of at least a fifth more than this."""
    least = above * 1.2
    return next((seconds for seconds in _ROUND_SECONDS if seconds >= least), math.ceil(least))
