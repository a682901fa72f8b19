"""One round: from what was measured to what each host should run, and why."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.config import Pool
from penstock.decider.core.conclude import Decision, Round, conclude
from penstock.decider.core.desired import Wish, wish
from penstock.decider.core.hosts import advice, headroom, liveness, pending, placement
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.liveness import RollCall
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import PoolState, State, plans


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A round's results.

    Attributes:
        plans: the full plan of every host, workers by pool.
        repeat: hosts that have not begun their last command: it is to be sent again.
    """

    state: State
    decisions: tuple[Decision, ...]
    plans: dict[str, dict[str, int]]
    notices: tuple[Notice, ...]
    repeat: frozenset[str] = frozenset()


def decide(state: State, inputs: Inputs, now: float) -> Outcome:
    """Decides for the pools that are due.

    1. roll call: which hosts are there; 2. what each pool wishes: demand, bounds, policies;
    3. what the hosts can carry, shared fairly, and where; 4. decisions with their reasons, and what
    they mean for the promise; 5. the plan of each host, and how many hosts are needed.

    Pools in advisor mode are advised with the room that the others leave; their plan stays.
    Policies come before capacity, so that nothing they hold back can ask a host for too much.
    Deterministic: the same state, inputs and ``now`` (POSIX seconds, broker's clock) give the same
    outcome.
    """
    begin = _with_all_pools(state, inputs)
    present, state, notices = liveness.call(begin, inputs, now)
    due = [inputs.pools[name] for name in sorted(inputs.due_pools)]
    moving = frozenset(pool.name for pool in due if not pool.profile.advisor)
    needs = headroom.Needs(present, inputs)
    found = headroom.open_rooms(present, state, inputs, moving, needs)
    this = Round(state=state, inputs=inputs, present=present, rooms=found, needs=needs, now=now)
    wishes = {pool.name: _wish(pool, this) for pool in due}
    claims = [_claim(pool, wishes[pool.name], this) for pool in due]
    shares = _shares(claims, this)
    decisions = []
    for claim in claims:
        decision, told = conclude(this, claim, wishes[claim.pool], shares[claim.pool])
        decisions.append(decision)
        notices += told
    after, told = _advised(_with(state, decisions), this, claims, shares)
    notices += told
    state, repeat = _asked(begin, after, present, inputs, now)
    return Outcome(
        state=state,
        repeat=repeat,
        decisions=tuple(decisions),
        plans=plans(state, state.known | present.fresh | present.lost),
        notices=tuple(notices),
    )


def _with_all_pools(state: State, inputs: Inputs) -> State:
    """Every configured pool has a state; one that is not configured any more has none."""
    if list(state.pools) == list(inputs.pools):  # as nearly always
        return state
    pools = {name: state.pools.get(name) or PoolState() for name in inputs.pools}
    return msgspec.structs.replace(state, pools=pools)


def _wish(pool: Pool, this: Round) -> Wish:
    return wish(
        pool,
        this.inputs.seen_pools.get(pool.name),
        this.state.pools[pool.name],
        strategies=this.inputs.strategies,
        policies=this.inputs.policies,
        stale_seconds=this.inputs.rules.stale_seconds,
        now=this.now,
    )


def _claim(pool: Pool, wished: Wish, this: Round) -> Claim:
    remembered = this.state.pools[pool.name]
    exclusive = pool.kind == "exclusive"
    trial = this.needs.is_trial(pool, remembered)
    most = 1 if trial else wished.trail.workers
    return Claim(
        pool=pool.name,
        floor=min(wished.floor, most),
        demand=min(wished.demand, most),
        workers=min(wished.trail.workers, most),
        need=this.needs.of(pool, remembered),
        tried=this.needs.measured(pool).memory_bytes if trial else 0.0,
        placement=_begun(pool, remembered, this),
        snapshot=wished.snapshot,
        profile=pool.profile,
        one_host=exclusive,
        anchor=headroom.anchor(pool.name, remembered, this.inputs, this.present)
        if exclusive
        else None,
        movable=_movable(pool, remembered, this),
    )


def _begun(pool: Pool, remembered: PoolState, this: Round) -> Mapping[str, int]:
    """Where its workers are planned, without what heedless hosts have not begun."""
    return pending.kept(
        remembered.placement,
        pool.name,
        this.present.heedless,
        this.state,
        this.inputs.rules,
        this.now,
        # its jobs must never run on two hosts: it stays where it may be running
        gives_up=pool.kind != "exclusive",
    )


def _asked(
    before: State, after: State, present: RollCall, inputs: Inputs, now: float
) -> tuple[State, frozenset[str]]:
    """The state with what hosts are commanded, and those whose command is sent again."""
    alive = present.fresh | present.heedless
    again = pending.repeated(after.asked, alive, inputs.rules, now)
    if again:
        after = msgspec.structs.replace(after, asked={**after.asked, **again})
    return pending.ask(before, after, inputs, now), frozenset(again)


def _movable(pool: Pool, remembered: PoolState, this: Round) -> bool:
    """Moved one at a time, and only a pool that was left alone for a while."""
    every = this.inputs.rules.rebalance_seconds
    if not every or pool.kind in {"exclusive", "spark"} or pool.profile.advisor:
        return False
    return this.now - (remembered.placed_at or this.state.watching_since) >= every


def _shares(claims: list[Claim], this: Round) -> dict[str, dict[str, int]]:
    if this.present.forsaken:  # nowhere to move anything: the plan stands
        return {claim.pool: dict(this.state.pools[claim.pool].placement) for claim in claims}
    style, all_pools = this.inputs.rules.placement, this.inputs.due is None
    acting = [claim for claim in claims if not claim.profile.advisor]
    shares = placement.allocate(acting, this.rooms, style, all_pools=all_pools)
    advised = [claim for claim in claims if claim.profile.advisor]
    if advised:
        names = frozenset(claim.pool for claim in advised)
        placed = _placed(this.state, shares)
        left = headroom.open_rooms(this.present, placed, this.inputs, names, this.needs)
        shares |= placement.allocate(advised, left, style, all_pools=all_pools)
    return shares


def _advised(
    state: State, this: Round, claims: list[Claim], shares: dict[str, dict[str, int]]
) -> tuple[State, list[Notice]]:
    """The state with what is to be said about the number of hosts. Only a round over all knows."""
    known = this.inputs.due is None and not (this.present.forsaken or this.present.deaf)
    if not known or not advice.is_due(state.advice, this.now):
        return state, []
    acting = [claim for claim in claims if not claim.profile.advisor]
    found = advice.count(acting, shares, this.rooms)
    if found is None:
        return state, []
    given, told = advice.advise(state.advice, found, this.now)
    return msgspec.structs.replace(state, advice=given), told


def _placed(state: State, shares: dict[str, dict[str, int]]) -> State:
    changed = {
        pool: msgspec.structs.replace(state.pools[pool], placement=share)
        for pool, share in shares.items()
    }
    return msgspec.structs.replace(state, pools={**state.pools, **changed})


def _with(state: State, decisions: list[Decision]) -> State:
    changed = {decision.pool: decision.state for decision in decisions}
    return msgspec.structs.replace(state, pools={**state.pools, **changed})
