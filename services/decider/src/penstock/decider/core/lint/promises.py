"""Rules about promises: whether workers can be there in time, and enough of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from penstock.config import Pool
from penstock.decider.core.lint.facts import Facts, seconds

TIGHT_SECONDS = 60.0
"""A promise below this is one that somebody waits for."""
HEEDLESS = frozenset(
    {"fixed", "schedule", "jobs_per_worker", "queue_size", "simple_rate", "throughput"}
)
"""Strategies that look neither at the promise nor at how long anybody waits."""
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
        seen, most = facts.seen_pools.get(pool.name), _most(pool)
        if seen is None or seen.service is None or not seen.arrival_per_second:
            continue
        needed = seen.arrival_per_second * seen.service.mean_seconds
        if needed > most:
            yield (
                f"pools.{pool.name}: {seen.arrival_per_second:.3g} jobs/s of "
                f"{seconds(seen.service.mean_seconds)} keep {math.ceil(needed)} workers busy, "
                f"max_workers is {most}: while it is like that the line only grows; raise it"
            )


def heedless_strategy(facts: Facts) -> Iterator[str]:
    """A tight promise with a strategy that does not look at it."""
    for pool in facts.pools.values():
        profile = pool.profile
        if pool.scalable and profile.strategy in HEEDLESS and profile.sla_seconds < TIGHT_SECONDS:
            yield (
                f"pools.{pool.name}: strategy {profile.strategy} does not look at the promise "
                f"({profile.quantile:.0%} within {seconds(profile.sla_seconds)}): choose one that "
                "does, or promise less"
            )


def _most(pool: Pool) -> int:
    return pool.profile.max_workers if pool.scalable else pool.profile.min_workers


def _next_round(above: float) -> float:
    """A promise that people would write, with some air."""
    return next((each for each in _ROUND_SECONDS if each >= above * 1.2), math.ceil(above * 1.2))
