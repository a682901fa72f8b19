"""What one pool asks for: demand, bounds, policies. What hosts can carry comes after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.config import Pool
from penstock.config.profiles import Profile
from penstock.decider.core import options, staleness
from penstock.decider.core.history import Trail
from penstock.decider.core.inputs import SeenPool
from penstock.decider.core.policies import chain
from penstock.decider.core.policies.policy import Policies, Proposal
from penstock.decider.core.portable import portable
from penstock.decider.core.registry import Strategies
from penstock.decider.core.state import PoolState
from penstock.decider.core.strategy import Demand, Strategy, StrategyInputs, check, whole
from penstock.events.snapshot import PoolSnapshot

_MOST_MEMORY_BYTES = 64 * 1024
"""What a strategy may remember; it is stored with each decision."""


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
        proposal: as the pool's policies see it.
    """

    trail: Trail
    floor: int
    demand: int
    proposal: Proposal
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
    policies: Policies,
    stale_seconds: float,
    now: float,
) -> Wish:
    """One pool's wish from its measurements and its last plan."""
    fault = staleness.fault(seen, now, stale_seconds)
    proposal = _proposal(pool, state, None if fault or seen is None else seen.snapshot, now)
    if not pool.scalable:
        return _pinned(proposal)
    if fault or seen is None:
        return _standing(proposal, ("stale", "stale", f"the plan stands: {fault}"))
    inputs = StrategyInputs(
        pool=pool,
        snapshot=seen.snapshot,
        age_seconds=staleness.age_seconds(seen, now),
        current=proposal.current,
        now=now,
        memory=state.memory,
    )
    trail = Trail()
    try:
        demand = _demand(strategies, inputs, trail)
    except Exception as error:
        name = pool.profile.strategy
        why = f"the plan stands: strategy {name} raised {error!r}"
        return _standing(proposal, ("strategy", name, why))
    return _limited(proposal, state, demand, trail, policies)


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
    memory = portable(demand.memory, _MOST_MEMORY_BYTES)
    return msgspec.structs.replace(demand, memory=memory)


def _limited(
    proposal: Proposal, state: PoolState, demand: Demand, trail: Trail, policies: Policies
) -> Wish:
    """Gaps, bounds, policies, and bounds again: a policy may hold a number that is out of them."""
    profile, snapshot, current = proposal.profile, proposal.snapshot, proposal.current
    own, gap = trail.workers, staleness.gap(snapshot) if snapshot else None
    if gap and own < current:
        trail.change("stale", "incomplete", current, f"stays {current}: {gap}")
    stands = gap is not None and trail.workers == current
    _bound(trail, profile)
    wanted = trail.workers
    proposal = msgspec.structs.replace(proposal, wanted=wanted, workers=wanted)
    if not stands:  # else a policy could lower what may not be lowered on such measurements
        chain.ask(proposal, state.policies, policies, trail)
        _bound(trail, profile)
    return Wish(
        trail=trail,
        floor=trail.workers if stands else min(max(profile.min_workers, 1), trail.workers),
        demand=min(wanted, trail.workers),
        proposal=proposal,
        snapshot=snapshot,
        wanted=own,
        predicted_pickup_seconds=demand.predicted_pickup_seconds,
        memory=demand.memory,
    )


def _proposal(pool: Pool, state: PoolState, snapshot: PoolSnapshot | None, now: float) -> Proposal:
    """Before anything is wanted: that it stays as it is."""
    current = state.workers
    return Proposal(
        pool=pool.name,
        profile=pool.profile,
        current=current,
        wanted=current,
        workers=current,
        busy=busy_workers(snapshot) if snapshot else 0,
        urgent=bool(snapshot and is_urgent(snapshot, pool.profile, state)),
        up_at=state.up_at,
        down_at=state.down_at,
        snapshot=snapshot,
        now=now,
    )


def _bound(trail: Trail, profile: Profile) -> None:
    least, most = profile.min_workers, profile.max_workers
    if trail.workers < least:
        trail.change("bounds", "min_workers", least, f"{least}: the pool's minimum")
    elif trail.workers > most:
        trail.change("bounds", "max_workers", most, f"{most}: the pool's maximum")


def _pinned(proposal: Proposal) -> Wish:
    workers, trail = proposal.profile.min_workers, Trail()
    trail.say("strategy", "pinned", workers, f"{workers}: the pool is pinned, it is not scaled")
    return _settled(proposal, trail)


def _standing(proposal: Proposal, said: tuple[str, str, str]) -> Wish:
    """The last plan, within the bounds (these are settings, not measurements)."""
    step, rule, why = said
    trail = Trail()
    trail.say(step, rule, proposal.current, why)
    _bound(trail, proposal.profile)
    return _settled(proposal, trail)


def _settled(proposal: Proposal, trail: Trail) -> Wish:
    """All of it is served before anything else; no policy is asked."""
    workers = trail.workers
    return Wish(
        trail=trail,
        floor=workers,
        demand=workers,
        proposal=msgspec.structs.replace(proposal, wanted=workers, workers=workers),
        snapshot=proposal.snapshot,
    )
