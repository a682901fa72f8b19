"""The workers that one pool desires: demand, bounds, policies, an operator's hold.

What hosts can carry comes after.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.config import Pool
from penstock.config.profiles import Profile
from penstock.decider.core import options
from penstock.decider.core.history import History
from penstock.decider.core.inputs import MeasuredPool
from penstock.decider.core.policies import chain
from penstock.decider.core.policies.policy import Policies, Proposal
from penstock.decider.core.portable import portable
from penstock.decider.core.registry import Strategies
from penstock.decider.core.state import PoolState
from penstock.decider.core.strategy import Demand, Strategy, StrategyInputs, check, whole
from penstock.events.orders import Hold
from penstock.events.snapshot import PoolSnapshot

PLAN_STANDS = "the plan stands: "
"""Begins a reason for which nothing could be decided."""
_MOST_MEMORY_BYTES = 64 * 1024
"""Limit of what a strategy may remember; it is stored with each decision."""

_STALE_LOOKS = 2.5
"""Figures of a source that is looked at more rarely are stale when two looks are missing."""


class DesiredWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """The workers that a pool asks the hosts for.

    Attributes:
        history: the reasons so far; its number is what is asked for.
        floor: served before anything else: the minimum, a first worker where one is wanted (cores
            are shared, so a busy neighbour may slow a pool down but never hold it at nothing), all
            of it where the plan must stand.
        demand: served next, in the order of lateness; the rest only delays a scale-down.
        proposal: as the pool's policies see it.
        snapshot: the measurement behind it; None where that was stale or missing.
        wanted: the strategy's own number.
        predicted_pickup_seconds: the strategy's own prediction for that number.
        memory: what the strategy wants to remember; None where the strategy was not run.
    """

    history: History
    floor: int
    demand: int
    proposal: Proposal
    snapshot: PoolSnapshot | None = None
    wanted: int = 0
    predicted_pickup_seconds: float | None = None
    memory: Mapping[str, Any] | None = None


def desired_workers(
    pool: Pool,
    measurement: MeasuredPool | None,
    state: PoolState,
    *,
    strategies: Strategies,
    policies: Policies,
    stale_seconds: float,
    now: float,
    hold: Hold | None = None,
) -> DesiredWorkers:
    """The desired workers of one pool, from its measurements and its last plan.

    An operator's hold comes last: it stands above the strategy, the policies and the bounds of the
    settings. Exclusive pools are pinned and cannot be held.
    """
    stale_seconds = max(stale_seconds, _STALE_LOOKS * pool.look_seconds)
    fault = _unusable(measurement, now, stale_seconds)
    usable = None if fault else measurement
    proposal = _proposal(pool, state, usable.snapshot if usable else None, now)
    if not pool.scalable:
        return _pinned(proposal)
    if usable is None:
        # old or missing measurements never lower a worker count
        return _unchanged(proposal, "stale", "stale", f"{PLAN_STANDS}{fault}", hold)
    inputs = StrategyInputs(
        pool=pool,
        snapshot=usable.snapshot,
        age_seconds=usable.age_seconds(now),
        current=proposal.current,
        now=now,
        memory=state.memory,
    )
    history = History()
    try:
        demand = _demand(strategies, inputs, history)
    except Exception as error:  # a plug-in's own fault must not end the round of all pools
        name = pool.profile.strategy
        why = f"{PLAN_STANDS}strategy {name} raised {error!r}"
        return _unchanged(proposal, "strategy", name, why, hold)
    return _limited(proposal, state, demand, history, policies, hold, pool.job_slots)


def is_urgent(snapshot: PoolSnapshot, profile: Profile, state: PoolState) -> bool:
    """A breach is there, predicted or near: the oldest job is past the threshold."""
    oldest = snapshot.oldest_waiting_seconds
    near = oldest is not None and oldest >= profile.sla_seconds * profile.breach_threshold
    announced = state.breached_at is not None or state.predicted_at is not None
    return bool(snapshot.waiting) and (near or announced)


def busy_workers(snapshot: PoolSnapshot, slots: int = 1) -> int:
    """Workers with a job, by their own reports; by the claims where no worker reports.

    Args:
        slots: of one worker; of several, as many workers as the running jobs would fill.
    """
    if slots > 1:
        used = snapshot.slots_ready - snapshot.slots_idle
        return whole((snapshot.running if snapshot.worker_age_seconds is None else used) / slots)
    if snapshot.worker_age_seconds is None:
        return snapshot.running
    return max(snapshot.workers_ready - snapshot.workers_idle, 0)


def _unusable(measurement: MeasuredPool | None, now: float, stale_seconds: float) -> str | None:
    """Why nothing can be decided from this measurement, as a clause; None if it can."""
    if measurement is None:
        return "nothing was measured yet"
    age = measurement.age_seconds(now)
    if age > stale_seconds:
        return f"the last measurement is {age:.1f} s old (more than {stale_seconds:g} s)"
    return None


def _incomplete(snapshot: PoolSnapshot) -> str | None:
    """The figure that a fresh snapshot lacks, so that it may raise a demand but not lower it."""
    if snapshot.arrival_per_second is None:
        return "the arrival rate is not measured yet"
    if snapshot.waiting and snapshot.oldest_waiting_seconds is None:
        return "the age of the oldest job is unknown"
    loaded = snapshot.waiting or snapshot.arrival_per_second > 0
    if loaded and (snapshot.service is None or not snapshot.service.count):
        return "no job's run time is measured yet"
    return None


def _demand(strategies: Mapping[str, Strategy], inputs: StrategyInputs, history: History) -> Demand:
    name = inputs.pool.profile.strategy
    if name not in strategies:
        raise LookupError(f"no strategy of this name is installed (known: {sorted(strategies)})")
    demand = check(options.demand(name, strategies, inputs))
    history.extend(demand.reasons)
    workers = whole(demand.workers)
    if not demand.reasons or history.workers != workers:
        history.add("strategy", name, workers, f"{workers} wanted by {name}")
    memory = portable(demand.memory, _MOST_MEMORY_BYTES)
    return msgspec.structs.replace(demand, memory=memory)


def _limited(
    proposal: Proposal,
    state: PoolState,
    demand: Demand,
    history: History,
    policies: Policies,
    hold: Hold | None,
    slots: int,
) -> DesiredWorkers:
    """Gaps, bounds, policies, and bounds again: a policy may leave a number that is out of them.

    An operator's hold is last.
    """
    profile, snapshot, current = proposal.profile, proposal.snapshot, proposal.current
    own, gap = history.workers, _incomplete(snapshot) if snapshot else None
    if gap and own < current:
        history.change("stale", "incomplete", current, f"stays {current}: {gap}")
    stands = gap is not None and history.workers == current
    _bound(history, profile)
    _cap(history, profile, snapshot, slots)
    wanted = history.workers
    proposal = msgspec.structs.replace(proposal, wanted=wanted, workers=wanted)
    if not stands:  # else a policy could lower what may not be lowered on such measurements
        chain.apply(proposal, state.policies, policies, history)
        _bound(history, profile)
        _cap(history, profile, snapshot, slots)
    least = _held(history, hold)
    floor = history.workers if stands else min(max(profile.min_workers, 1), history.workers)
    return DesiredWorkers(
        history=history,
        floor=max(floor, least),
        demand=max(min(wanted, history.workers), least),
        proposal=proposal,
        snapshot=snapshot,
        wanted=own,
        predicted_pickup_seconds=demand.predicted_pickup_seconds,
        memory=demand.memory,
    )


def _proposal(pool: Pool, state: PoolState, snapshot: PoolSnapshot | None, now: float) -> Proposal:
    """Before anything is wanted: that it stays as it is."""
    current = state.workers
    busy = busy_workers(snapshot, pool.job_slots) if snapshot else 0
    if pool.profile.advisor and snapshot and snapshot.worker_age_seconds is None:
        # another autoscaler runs the workers: the jobs in work show how many there are at least
        current = max(current, busy)
    return Proposal(
        pool=pool.name,
        profile=pool.profile,
        current=current,
        wanted=current,
        workers=current,
        busy=busy,
        urgent=bool(snapshot and is_urgent(snapshot, pool.profile, state)),
        up_at=state.up_at,
        down_at=state.down_at,
        snapshot=snapshot,
        now=now,
    )


def _bound(history: History, profile: Profile) -> None:
    least, most = profile.min_workers, profile.max_workers
    if history.workers < least:
        history.change("bounds", "min_workers", least, f"{least}: the pool's minimum")
    elif history.workers > most:
        history.change("bounds", "max_workers", most, f"{most}: the pool's maximum")


def _cap(history: History, profile: Profile, snapshot: PoolSnapshot | None, slots: int) -> None:
    """No more workers than find something to do, but the pool's minimum, and one."""
    if snapshot is None or snapshot.cap is None:
        return
    most = max(whole(snapshot.cap / slots), profile.min_workers, 1)
    if history.workers > most:
        text = f"{most}: the source lets {snapshot.cap} messages be handled at a time at most"
        history.change("bounds", "cap", most, text)


def _held(history: History, hold: Hold | None) -> int:
    """Applies an operator's hold, visibly even where it changes nothing.

    Returns:
        The workers that the hold demands, whatever the load.
    """
    if hold is None:
        return 0
    workers = max(history.workers, hold.at_least)
    if hold.at_most is not None:
        workers = min(workers, hold.at_most)
    until = datetime.fromtimestamp(hold.until, UTC)
    text = f"{workers}: held {hold.bounds} until {until:%Y-%m-%d %H:%M:%S} UTC by {hold.by}"
    if hold.reason:
        text += f": {hold.reason}"
    history.add("hold", "operator", workers, text, until=hold.until)
    return min(hold.at_least, workers)


def _pinned(proposal: Proposal) -> DesiredWorkers:
    workers, history = proposal.profile.min_workers, History()
    history.add("strategy", "pinned", workers, f"{workers}: fixed, the pool is not scaled")
    return _settled(proposal, history)


def _unchanged(
    proposal: Proposal, step: str, rule: str, why: str, hold: Hold | None
) -> DesiredWorkers:
    """The last plan, within the bounds and the hold (settings and orders, not measurements)."""
    history = History()
    history.add(step, rule, proposal.current, why)
    _bound(history, proposal.profile)
    _held(history, hold)
    return _settled(proposal, history)


def _settled(proposal: Proposal, history: History) -> DesiredWorkers:
    """All of it is served before anything else; the policies are not applied."""
    workers = history.workers
    return DesiredWorkers(
        history=history,
        floor=workers,
        demand=workers,
        proposal=msgspec.structs.replace(proposal, wanted=workers, workers=workers),
        snapshot=proposal.snapshot,
    )
