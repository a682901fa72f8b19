"""From a pool's share to its decision: the last reasons, the outlook, the state after it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.decider.core import breach
from penstock.decider.core.desired import DesiredWorkers
from penstock.decider.core.hosts import headroom
from penstock.decider.core.hosts.capacity import HostCapacity
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.liveness import HostLiveness
from penstock.decider.core.hosts.needs import Needs
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.notices import Notice
from penstock.decider.core.pickup import Outlook, outlook
from penstock.decider.core.policies import chain
from penstock.decider.core.policies.policy import Result
from penstock.decider.core.slots import snapshot_in_slots
from penstock.decider.core.state import PoolState, State
from penstock.events.scaling import Reason

Share = dict[str, int]


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The decision on a pool's workers; see the event `ScalingDecisionMade`.

    With ``advice``, the plan in ``state`` stays what it was: nothing is commanded.
    """

    pool: str
    current: int
    target: int
    reasons: tuple[Reason, ...]
    strategy: str
    sla_seconds: float
    predicted_pickup_seconds: float | None
    snapshot_ids: tuple[str, ...]
    placement: Share
    state: PoolState
    advice: bool = False


class RoundContext(msgspec.Struct, frozen=True, kw_only=True):
    """The values that all pools of a round share.

    ``crash_loops``: by pool, hosts that get no further workers of it.
    """

    state: State
    inputs: Inputs
    hosts: HostLiveness
    capacities: Mapping[str, HostCapacity]
    needs: Needs
    now: float
    crash_loops: Mapping[str, frozenset[str]] = {}


def conclude(
    context: RoundContext, claim: Claim, desired: DesiredWorkers, share: Share
) -> tuple[Decision, list[Notice]]:
    """The decision, and what it means for the promise."""
    before = context.state.pools[claim.pool]
    measurement = context.inputs.measured_pools.get(claim.pool)
    current, target = desired.proposal.current, sum(share.values())
    _explain_share(context, claim, desired, target)
    _explain_moves(context.hosts, claim, before, desired, share)
    advice = claim.profile.advisor
    if advice:
        text = f"{target} advised: in advisor mode the plan stays {before.workers}"
        desired.history.add("advice", "advisor", target, text, planned=before.workers)
    promise = claim.profile.sla_seconds
    slots = context.inputs.pools[claim.pool].job_slots
    expected = _outlook(desired, target, promise, slots)
    planned = current if advice else target
    placement = dict(before.placement) if advice else share
    after = _stepped(before, desired, placement, planned - current, context.now)
    promised = _outlook(desired, planned, promise, slots) if advice else expected
    after, breach_notices = _watched(context, claim, desired, after, promised)
    result = Result(
        target=target,
        planned=planned,
        reasons=desired.history.reasons,
        breached_at=after.breached_at,
    )
    after, policy_notices = _remembered(context, desired, after, result)
    decision = Decision(
        pool=claim.pool,
        current=current,
        target=target,
        reasons=desired.history.reasons,
        strategy=claim.profile.strategy,
        sla_seconds=claim.profile.sla_seconds,
        predicted_pickup_seconds=expected.arriving_seconds if expected else None,
        snapshot_ids=(measurement.snapshot.id,) if measurement else (),
        placement=share,
        state=after,
        advice=advice,
    )
    return decision, breach_notices + policy_notices


def _watched(
    context: RoundContext,
    claim: Claim,
    desired: DesiredWorkers,
    state: PoolState,
    expected: Outlook | None,
) -> tuple[PoolState, list[Notice]]:
    """The state with what the plan means for the promise."""
    if desired.snapshot is None or expected is None:
        return state, []
    return breach.watch(state, desired.snapshot, claim.profile, expected, context.now)


def _remembered(
    context: RoundContext, desired: DesiredWorkers, state: PoolState, result: Result
) -> tuple[PoolState, list[Notice]]:
    """The state with what the policies remember."""
    memories, notices = chain.review(
        desired.proposal, state.policies, context.inputs.policies, result, desired.history
    )
    if memories == state.policies:
        return state, notices
    return msgspec.structs.replace(state, policies=memories), notices


def _explain_share(
    context: RoundContext, claim: Claim, desired: DesiredWorkers, target: int
) -> None:
    """Why it is less than desired: what hosts can carry at all, then what other pools need."""
    history = desired.history
    if context.hosts.all_hosts_lost:
        text = f"the plan of {target} stands: all hosts are lost, none sent a snapshot lately"
        history.change("stale", "hosts", target, text)
        return
    if target >= history.workers:
        return
    if claim.tried and target:
        text = f"{target}: tried with the configured {_mb(claim.need.memory_bytes)}"
        text += f", as the {_mb(claim.tried)} that were measured fit on no host"
        history.change("capacity", "trial", target, text)
        return
    fit = headroom.alone(claim, context.capacities, context.inputs, context.hosts.silent)
    carried = max(min(fit.workers, history.workers), target)
    if fit.bound == "hosts":
        history.change("capacity", fit.bound, carried, f"{carried}: {_no_host(context.hosts)}")
    elif fit.others:
        text = f"{carried}: host {fit.host} has no {fit.bound} left for more; processes other than"
        text += f" Penstock's workers use {fit.others} there"
        history.change("capacity", "other-processes", carried, text)
    else:
        text = f"{carried}: host {fit.host} has no {fit.bound} left for more"
        history.change("capacity", fit.bound, carried, text)
    text = f"{target} is the pool's fair share of capacity that other pools need too"
    history.change("fair-share", "lateness", target, text)


def _no_host(hosts: HostLiveness) -> str:
    held_back = sorted(hosts.paused | hosts.drained)
    if not held_back:
        return "no host is there to run workers"
    return f"no host takes workers, as an operator pauses or drains {', '.join(held_back)}"


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _explain_moves(
    hosts: HostLiveness, claim: Claim, before: PoolState, desired: DesiredWorkers, share: Share
) -> None:
    if not (hosts.lost or hosts.draining or hosts.unresponsive or claim.avoided):
        _explain_levelling(before, desired, share)
        return
    for affected, why in (
        (hosts.lost, "lost"),
        (hosts.draining - hosts.drained, "draining"),
        (hosts.drained, "drained by an operator"),
        (hosts.unresponsive, "its commands are not begun"),
        (claim.avoided, "its workers end as soon as they start"),
    ):
        left = sorted(host for host in before.placement if host in affected and host not in share)
        if left:
            text = f"moved away from {', '.join(left)}: {why}"
            desired.history.add("placement", why, desired.history.workers, text, hosts=left)


def _explain_levelling(before: PoolState, desired: DesiredWorkers, share: Share) -> None:
    if share == before.placement or sum(share.values()) != before.workers:
        return
    moved = {host: share.get(host, 0) - before.placement.get(host, 0) for host in share}
    taking = sorted(host for host, change in moved.items() if change > 0)
    text = f"moved to {', '.join(taking)}, which had fewer"
    desired.history.add("placement", "level", desired.history.workers, text, hosts=taking)


def _outlook(
    desired: DesiredWorkers, target: int, promise_seconds: float, slots: int
) -> Outlook | None:
    """Only with a fresh snapshot; a strategy's own figure holds for its own number."""
    if desired.snapshot is None:
        return None
    snapshot = snapshot_in_slots(desired.snapshot, slots)
    expected = outlook(snapshot, target * slots, promise_seconds)
    own = desired.predicted_pickup_seconds
    if own is None or desired.wanted != target:
        return expected
    return Outlook(arriving_seconds=own, oldest_seconds=expected.oldest_seconds)


def _stepped(
    state: PoolState, desired: DesiredWorkers, plan: Share, step: int, now: float
) -> PoolState:
    """The state with the plan, ``step`` workers more than before, and with what the strategy
    remembers."""
    memory = desired.memory
    return msgspec.structs.replace(
        state,
        placement=plan,
        up_at=now if step > 0 else state.up_at,
        down_at=now if step < 0 else state.down_at,
        placed_at=state.placed_at if plan == state.placement else now,
        memory=state.memory if memory is None or memory == state.memory else memory,
    )
