"""What one pool asks for: demand, bounds, policies. What hosts can carry comes after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.config import Pool
from penstock.config.settings import Profile
from penstock.decider.core import options, policies, staleness
from penstock.decider.core.inputs import SeenPool
from penstock.decider.core.registry import Strategies
from penstock.decider.core.state import PoolState
from penstock.decider.core.strategy import Demand, Strategy, StrategyInputs, check, whole
from penstock.decider.core.trail import Trail
from penstock.events.snapshot import PoolSnapshot


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What a pool asks for.

    Attributes:
        trail: the reasons so far; its number is what is asked for.
        floor: served before anything else: the minimum, a first worker where one is wanted (cores
            are shared, so a busy neighbour may slow a pool down but never hold it at nothing), all
            of it where the plan must stand.
        demand: served next, in the order of lateness; the rest is only held back from going.
        snapshot: what it rests on; None where that was stale or missing.
        wanted: the strategy's own number. predicted_pickup_seconds: its own figure for that.
        memory: what the strategy wants to remember; None where it was not asked.
    """

    trail: Trail
    floor: int
    demand: int
    snapshot: PoolSnapshot | None = None
    wanted: int = 0
    predicted_pickup_seconds: float | None = None
    memory: Mapping[str, Any] | None = None


def wish(
    pool: Pool,
    seen: SeenPool | None,
    state: PoolState,
    *,
    strategies: Strategies,
    stale_seconds: float,
    now: float,
) -> Wish:
    """One pool's wish from its measurements and its last plan."""
    fault = staleness.fault(seen, now, stale_seconds)
    if not pool.scalable:
        return _pinned(pool, None if fault or seen is None else seen.snapshot)
    if fault or seen is None:
        return _standing(pool, state, ("stale", "stale", f"the plan stands: {fault}"))
    inputs = StrategyInputs(
        pool=pool,
        snapshot=seen.snapshot,
        age_seconds=staleness.age_seconds(seen, now),
        current=state.workers,
        now=now,
        memory=state.memory,
    )
    trail = Trail()
    try:
        demand = _demand(strategies, inputs, trail)
    except Exception as error:
        name = pool.profile.strategy
        why = f"the plan stands: strategy {name} raised {error!r}"
        return _standing(pool, state, ("strategy", name, why), seen.snapshot)
    return _limited(inputs, state, demand, trail)


def is_urgent(snapshot: PoolSnapshot, profile: Profile, state: PoolState) -> bool:
    """A breach is there, predicted or near: the oldest job is past the threshold."""
    oldest = snapshot.oldest_waiting_seconds
    near = oldest is not None and oldest >= profile.sla_seconds * profile.breach_threshold
    told = state.breached_at is not None or state.predicted_at is not None
    return bool(snapshot.waiting) and (near or told)


def busy_workers(snapshot: PoolSnapshot) -> int:
    """Workers with a job, by their own reports; by the claims where nobody reports."""
    if snapshot.worker_age_seconds is None:
        return snapshot.running
    return max(snapshot.workers_ready - snapshot.workers_idle, 0)


def _demand(strategies: Mapping[str, Strategy], inputs: StrategyInputs, trail: Trail) -> Demand:
    name = inputs.pool.profile.strategy
    if name not in strategies:
        raise LookupError(f"no strategy of this name is installed (known: {sorted(strategies)})")
    demand = check(options.demand(name, strategies, inputs))
    trail.take(demand.reasons)
    workers = whole(demand.workers)
    if not demand.reasons or trail.workers != workers:
        trail.say("strategy", name, workers, f"{workers} wanted by {name}")
    return demand


def _limited(inputs: StrategyInputs, state: PoolState, demand: Demand, trail: Trail) -> Wish:
    """Gaps, bounds, policies, and bounds again: a policy may hold a number that is out of them."""
    profile, snapshot, own = inputs.pool.profile, inputs.snapshot, trail.workers
    gap = staleness.gap(snapshot)
    if gap and own < inputs.current:
        trail.change("stale", "incomplete", inputs.current, f"stays {inputs.current}: {gap}")
    stands = gap is not None and trail.workers == inputs.current
    _bound(trail, profile)
    wanted = trail.workers
    policies.apply(_proposal(inputs, state, wanted), trail)
    _bound(trail, profile)
    return Wish(
        trail=trail,
        floor=trail.workers if stands else min(max(profile.min_workers, 1), trail.workers),
        demand=min(wanted, trail.workers),
        snapshot=snapshot,
        wanted=own,
        predicted_pickup_seconds=demand.predicted_pickup_seconds,
        memory=demand.memory,
    )


def _proposal(inputs: StrategyInputs, state: PoolState, wanted: int) -> policies.Proposal:
    profile, snapshot = inputs.pool.profile, inputs.snapshot
    return policies.Proposal(
        pool=inputs.pool.name,
        profile=profile,
        current=inputs.current,
        workers=wanted,
        busy=busy_workers(snapshot),
        urgent=is_urgent(snapshot, profile, state),
        up_at=state.up_at,
        down_at=state.down_at,
        now=inputs.now,
    )


def _bound(trail: Trail, profile: Profile) -> None:
    least, most = profile.min_workers, profile.max_workers
    if trail.workers < least:
        trail.change("bounds", "min_workers", least, f"{least}: the pool's minimum")
    elif trail.workers > most:
        trail.change("bounds", "max_workers", most, f"{most}: the pool's maximum")


def _pinned(pool: Pool, snapshot: PoolSnapshot | None) -> Wish:
    workers, trail = pool.profile.min_workers, Trail()
    trail.say("strategy", "pinned", workers, f"{workers}: the pool is pinned, it is not scaled")
    return Wish(trail=trail, floor=workers, demand=workers, snapshot=snapshot)


def _standing(
    pool: Pool, state: PoolState, said: tuple[str, str, str], snapshot: PoolSnapshot | None = None
) -> Wish:
    """The last plan, within the bounds (these are settings, not measurements)."""
    step, rule, why = said
    trail = Trail()
    trail.say(step, rule, state.workers, why)
    _bound(trail, pool.profile)
    return Wish(trail=trail, floor=trail.workers, demand=trail.workers, snapshot=snapshot)
