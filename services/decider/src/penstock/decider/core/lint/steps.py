"""Rules about thresholds, cooldowns and policies that work against each other."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.config import Pool
from penstock.decider.core.lint.facts import Facts, seconds
from penstock.decider.core.policies.budget import NAME as BUDGET_CAP
from penstock.decider.core.policies.budget import Options as BudgetOptions
from penstock.decider.core.policies.effectiveness import NAME as EFFECTIVENESS
from penstock.decider.core.policies.effectiveness import Options as EffectivenessOptions


def always_stale(facts: Facts) -> Iterator[str]:
    """Measurements are stale before the next one comes: no worker would ever be removed."""
    stale, interval = facts.settings.decider.stale_seconds, facts.settings.metrics.interval_seconds
    if stale < 2 * interval:
        yield (
            f"decider.stale_seconds {stale:g} is less than two of metrics.interval_seconds "
            f"{interval:g}: the plan would stand for ever; set it to {3 * interval:g} or more"
        )


def late_drain(facts: Facts) -> Iterator[str]:
    """`hybrid` would begin to empty the queue when the promise is broken already."""
    for pool in facts.pools.values():
        profile = pool.profile
        if pool.scalable and profile.strategy == "hybrid":
            left = profile.sla_seconds * (1 - profile.breach_threshold)
            spawn, source = facts.spawn(pool)
            if left < spawn < profile.sla_seconds:
                yield (
                    f"pools.{pool.name}: hybrid begins to empty the queue {seconds(left)} before "
                    f"the promise is broken, a worker needs {seconds(spawn)} to start ({source}): "
                    "lower breach_threshold"
                )


def slow_steps_up(facts: Facts) -> Iterator[str]:
    """A cooldown upwards longer than the promise: it grows only through breaches."""
    for pool in facts.pools.values():
        wait, sla = pool.profile.scale_up_cooldown_seconds, pool.profile.sla_seconds
        if pool.scalable and _has(pool, "cooldown") and wait >= sla:
            yield (
                f"pools.{pool.name}: scale_up_cooldown_seconds {wait:g} reaches the promise "
                f"({seconds(sla)}): it would grow only when that is all but broken; lower it"
            )


def opposed_policies(facts: Facts) -> Iterator[str]:
    """Policies of which one undoes what the other is for."""
    for pool in facts.pools.values():
        policies = pool.profile.policies_in_force
        for gentle in ("cooldown", "conservative"):
            if "aggressive" in policies and gentle in policies:
                yield (
                    f"pools.{pool.name}: aggressive and {gentle} work against each other: "
                    "keep one of them"
                )
        for idle in ("aggressive", "conservative", "break-even"):
            if "no-scale-down" in policies and idle in policies:
                yield f"pools.{pool.name}: with no-scale-down, {idle} has nothing to do: remove it"


def budget_below_minimum(facts: Facts) -> Iterator[str]:
    """The minimum alone costs more than the day's budget."""
    for pool in facts.pools.values():
        if pool.scalable and _has(pool, BUDGET_CAP):
            table = pool.profile.policy_options.get(BUDGET_CAP, {})
            budget = msgspec.convert(table, BudgetOptions).seconds_per_day / 3600
            least = 24 * pool.profile.min_workers
            if least > budget:
                yield (
                    f"pools.{pool.name}: min_workers {pool.profile.min_workers} alone cost {least} "
                    f"worker-hours a day, the budget is {budget:g}: it is never kept; lower one or "
                    "raise the other"
                )


def short_settling(facts: Facts) -> Iterator[str]:
    """`effectiveness` would compare run times measured before its last change."""
    window = facts.settings.metrics.window_seconds
    for pool in facts.pools.values():
        if pool.scalable and _has(pool, EFFECTIVENESS):
            table = pool.profile.policy_options.get(EFFECTIVENESS, {})
            settle = msgspec.convert(table, EffectivenessOptions).settle_seconds
            if settle < window:
                yield (
                    f"pools.{pool.name}: effectiveness compares after {seconds(settle)}, run times "
                    f"are measured over {seconds(window)} (metrics.window_seconds): set its "
                    f"settle_seconds to {window:g}"
                )


def only_advised(facts: Facts) -> Iterator[str]:
    """In advisor mode no worker is started. A source without a command is meant so."""
    for pool in facts.pools.values():
        if pool.profile.advisor and (pool.command or not pool.source):
            yield (
                f"pools.{pool.name}: in advisor mode its plan stays as it is; a new pool has no "
                "workers: set advisor = false to have it scaled"
            )


def _has(pool: Pool, policy: str) -> bool:
    return policy in pool.profile.policies_in_force
