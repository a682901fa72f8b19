"""From a pool's share to its decision: the last reasons, the outlook, the state after it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.decider.core import breach
from penstock.decider.core.desired import Wish
from penstock.decider.core.hosts import headroom
from penstock.decider.core.hosts.capacity import Room
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.headroom import Needs
from penstock.decider.core.hosts.liveness import RollCall
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.notices import Notice
from penstock.decider.core.pickup import Outlook, outlook
from penstock.decider.core.policies import chain
from penstock.decider.core.policies.policy import Result
from penstock.decider.core.state import PoolState, State
from penstock.events.scaling import Reason

Share = dict[str, int]


class Decision(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How many workers a pool should have; see the event `ScalingDecisionMade`.

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


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What all pools of a round have in common."""

    state: State
    inputs: Inputs
    present: RollCall
    rooms: Mapping[str, Room]
    needs: Needs
    now: float


def conclude(
    this: Round, claim: Claim, wished: Wish, share: Share
) -> tuple[Decision, list[Notice]]:
    """The decision, and what it means for the promise."""
    before, seen = this.state.pools[claim.pool], this.inputs.seen_pools.get(claim.pool)
    current, target = wished.proposal.current, sum(share.values())
    _explain_share(this, claim, wished, target)
    _explain_moves(this.present, before, wished, share)
    advice = claim.profile.advisor
    if advice:
        text = f"{target} advised: in advisor mode the plan stays {current}"
        wished.trail.say("advice", "advisor", target, text, planned=current)
    promise = claim.profile.sla_seconds
    expected = _outlook(wished, target, promise)
    planned = current if advice else target
    placement = dict(before.placement) if advice else share
    after = _stepped(before, wished, placement, planned - current, this.now)
    promised = _outlook(wished, planned, promise) if advice else expected
    after, told = _watched(this, claim, wished, after, promised)
    result = Result(
        target=target,
        planned=planned,
        reasons=wished.trail.reasons,
        breached_at=after.breached_at,
    )
    after, more = _told(this, wished, after, result)
    decision = Decision(
        pool=claim.pool,
        current=current,
        target=target,
        reasons=wished.trail.reasons,
        strategy=claim.profile.strategy,
        sla_seconds=claim.profile.sla_seconds,
        predicted_pickup_seconds=expected.arriving_seconds if expected else None,
        snapshot_ids=(seen.snapshot.id,) if seen else (),
        placement=share,
        state=after,
        advice=advice,
    )
    return decision, told + more


def _watched(
    this: Round, claim: Claim, wished: Wish, state: PoolState, expected: Outlook | None
) -> tuple[PoolState, list[Notice]]:
    """The state with what the plan means for the promise."""
    if wished.snapshot is None or expected is None:
        return state, []
    return breach.watch(state, wished.snapshot, claim.profile, expected, this.now)


def _told(
    this: Round, wished: Wish, state: PoolState, result: Result
) -> tuple[PoolState, list[Notice]]:
    """The state with what the policies remember."""
    known = this.inputs.policies
    memories, notices = chain.tell(wished.proposal, state.policies, known, result, wished.trail)
    if memories == state.policies:
        return state, notices
    return msgspec.structs.replace(state, policies=memories), notices


def _explain_share(this: Round, claim: Claim, wished: Wish, target: int) -> None:
    """Why it is less than wished: what hosts can carry at all, then what other pools need."""
    trail = wished.trail
    if this.present.forsaken:
        text = f"the plan of {target} stands: no host was heard of lately"
        trail.change("stale", "hosts", target, text)
        return
    if target >= trail.workers:
        return
    if claim.tried and target:
        text = f"{target}: tried with the configured {_mb(claim.need.memory_bytes)}"
        text += f", as the {_mb(claim.tried)} that were measured fit on no host"
        trail.change("capacity", "trial", target, text)
        return
    fit = headroom.alone(claim, this.rooms, this.inputs, this.present.silent)
    carried = max(min(fit.workers, trail.workers), target)
    if fit.bound == "hosts":
        trail.change("capacity", fit.bound, carried, f"{carried}: no host is there to run workers")
    elif fit.others:
        text = f"{carried} fit, by {fit.bound} of host {fit.host}: other processes than"
        text += f" Penstock's workers use {fit.others} there"
        trail.change("capacity", "other-processes", carried, text)
    else:
        text = f"{carried} fit, by {fit.bound} of host {fit.host}"
        trail.change("capacity", fit.bound, carried, text)
    text = f"{target} is its fair share of room that other pools need too"
    trail.change("fair-share", "lateness", target, text)


def _mb(size: float) -> str:
    return f"{size / 1e6:,.0f} MB"


def _explain_moves(present: RollCall, before: PoolState, wished: Wish, share: Share) -> None:
    if not (present.lost or present.draining or present.heedless):
        _explain_levelling(before, wished, share)
        return
    for gone, why in (
        (present.lost, "lost"),
        (present.draining, "draining"),
        (present.heedless, "its commands are not begun"),
    ):
        left = sorted(host for host in before.placement if host in gone and host not in share)
        if left:
            text = f"moved away from {', '.join(left)}: {why}"
            wished.trail.say("placement", why, wished.trail.workers, text, hosts=left)


def _explain_levelling(before: PoolState, wished: Wish, share: Share) -> None:
    if share == before.placement or sum(share.values()) != before.workers:
        return
    moved = {host: share.get(host, 0) - before.placement.get(host, 0) for host in share}
    taking = sorted(host for host, more in moved.items() if more > 0)
    text = f"moved to {', '.join(taking)}, which had fewer"
    wished.trail.say("placement", "level", wished.trail.workers, text, hosts=taking)


def _outlook(wished: Wish, target: int, promise_seconds: float) -> Outlook | None:
    """Only with a fresh snapshot; a strategy's own figure holds for its own number."""
    if wished.snapshot is None:
        return None
    expected = outlook(wished.snapshot, target, promise_seconds)
    own = wished.predicted_pickup_seconds
    if own is None or wished.wanted != target:
        return expected
    return Outlook(arriving_seconds=own, oldest_seconds=expected.oldest_seconds)


def _stepped(state: PoolState, wished: Wish, plan: Share, step: int, now: float) -> PoolState:
    """The state with the plan, ``step`` workers more than before, and with what the strategy
    remembers."""
    memory = wished.memory
    return msgspec.structs.replace(
        state,
        placement=plan,
        up_at=now if step > 0 else state.up_at,
        down_at=now if step < 0 else state.down_at,
        placed_at=state.placed_at if plan == state.placement else now,
        memory=state.memory if memory is None or memory == state.memory else memory,
    )
