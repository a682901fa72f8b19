"""One round: from what was measured to what each host should run, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from penstock.config import Pool
from penstock.decider.core.conclude import Decision, RoundContext, conclude
from penstock.decider.core.desired import DesiredWorkers, desired_workers
from penstock.decider.core.hosts import advice, headroom, liveness, pending, placement
from penstock.decider.core.hosts.fairshare import Claim
from penstock.decider.core.hosts.liveness import HostLiveness
from penstock.decider.core.hosts.needs import Needs
from penstock.decider.core.hosts.planned import PlannedWorkers
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.notices import Notice
from penstock.decider.core.state import PoolState, State


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A round's results.

    Attributes:
        state: after the round.
        decisions: of the pools that were due.
        plans: the full plan of every host, workers by pool.
        notices: events beside the decisions.
        repeat: hosts that have not begun their last command: it is to be sent again.
        short: a pool got fewer workers than it asked for, or a host carries more than it can: only
            a round over all pools takes from one to give to another.
    """

    state: State
    decisions: tuple[Decision, ...]
    plans: dict[str, dict[str, int]]
    notices: tuple[Notice, ...]
    repeat: frozenset[str] = frozenset()
    short: bool = False


def decide(
    state: State, inputs: Inputs, now: float, planned: PlannedWorkers | None = None
) -> Outcome:
    """Decides for the pools that are due.

    1. which hosts are alive; 2. what each pool desires: demand, bounds, policies; 3. what the hosts
    can carry, shared fairly, and where; 4. decisions with their reasons, and what they mean for the
    promise; 5. the plan of each host, and how many hosts are needed.

    Pools in advisor mode are advised with the headroom that the others leave; their plan stays.
    Policies come before capacity, so that nothing they hold back can ask a host for too much.
    Deterministic: the same state, inputs and ``now`` give the same outcome.

    Args:
        state: after the last round.
        inputs: measurements and settings.
        now: POSIX seconds, broker's clock.
        planned: kept by a caller that decides many rounds, to save time.
    """
    planned = planned or PlannedWorkers()
    begin = state if planned.follows(state, inputs) else _with_all_pools(state, inputs)
    hosts, state, notices = liveness.assess(begin, inputs, planned.hosts(begin, inputs), now)
    due = [inputs.pools[name] for name in sorted(inputs.due_pools)]
    moving = frozenset(pool.name for pool in due if not pool.profile.advisor)
    needs = Needs(hosts, inputs)
    planned.begin(begin, inputs, needs)
    context = RoundContext(
        state=state,
        inputs=inputs,
        hosts=hosts,
        capacities=headroom.host_capacities(hosts, planned, inputs, moving),
        needs=needs,
        crash_loops=headroom.crash_loops(hosts, inputs),
        now=now,
    )
    desired = {pool.name: _desired(pool, context) for pool in due}
    _leave_drained_hosts(due, desired, context)
    claims = [_claim(pool, desired[pool.name], context) for pool in due]
    shares = _shares(claims, context)
    decisions = []
    for claim in claims:
        decision, own_notices = conclude(context, claim, desired[claim.pool], shares[claim.pool])
        decisions.append(decision)
        notices += own_notices
    after, advice_notices = _advised(_with(state, decisions), context, claims, shares)
    notices += advice_notices
    names = [pool.name for pool in due]
    state, repeat = _commanded(begin, after, names, planned, hosts, inputs, now)
    planned.end(state, names, needs)
    return Outcome(
        state=state,
        repeat=repeat,
        decisions=tuple(decisions),
        plans=planned.plans(state.joined | hosts.fresh | hosts.lost),
        notices=tuple(notices),
        short=_is_short(claims, shares, context),
    )


def _with_all_pools(state: State, inputs: Inputs) -> State:
    """Every configured pool has a state; one that is not configured any more has none."""
    if list(state.pools) == list(inputs.pools):  # as nearly always
        return state
    pools = {name: state.pools.get(name) or PoolState() for name in inputs.pools}
    return msgspec.structs.replace(state, pools=pools)


def _desired(pool: Pool, context: RoundContext) -> DesiredWorkers:
    return desired_workers(
        pool,
        context.inputs.measured_pools.get(pool.name),
        context.state.pools[pool.name],
        strategies=context.inputs.strategies,
        policies=context.inputs.policies,
        stale_seconds=context.inputs.rules.stale_seconds,
        now=context.now,
        hold=context.inputs.orders.hold(pool.name, context.now),
    )


def _claim(pool: Pool, desired: DesiredWorkers, context: RoundContext) -> Claim:
    remembered = context.state.pools[pool.name]
    exclusive = pool.kind == "exclusive"
    avoided = context.crash_loops.get(pool.name, frozenset())
    trial = context.needs.is_trial(pool, remembered)
    most = 1 if trial else desired.history.workers
    return Claim(
        pool=pool.name,
        floor=min(desired.floor, most),
        demand=min(desired.demand, most),
        workers=min(desired.history.workers, most),
        need=context.needs.of(pool, remembered),
        tried=context.needs.measured(pool).memory_bytes if trial else 0.0,
        placement=_begun(pool, remembered, avoided, context),
        snapshot=desired.snapshot,
        profile=pool.profile,
        one_host=exclusive,
        anchor=headroom.anchor(pool.name, remembered, context.inputs, context.hosts)
        if exclusive
        else None,
        movable=_movable(pool, remembered, context),
        avoided=avoided,
    )


def _leave_drained_hosts(
    due: Sequence[Pool], desired: Mapping[str, DesiredWorkers], context: RoundContext
) -> None:
    """An exclusive pool first ends on a host that an operator drains, then starts elsewhere."""
    for pool in due if context.hosts.drained else ():
        home = headroom.drained_home(pool.name, context.inputs, context.hosts)
        if pool.kind == "exclusive" and home is not None:
            text = f"0 until its worker on {home}, which an operator drains, has ended"
            desired[pool.name].history.change("placement", "drained", 0, text, host=home)


def _begun(
    pool: Pool, remembered: PoolState, crash_looping: frozenset[str], context: RoundContext
) -> Mapping[str, int]:
    """The pool's placement without what unresponsive hosts have not begun.

    Of hosts where its workers keep ending at once only those that are ready stay.
    """
    placement = pending.kept(
        remembered.placement,
        pool.name,
        context.hosts.unresponsive,
        context.state,
        context.inputs.rules,
        context.now,
        # an exclusive pool's jobs must never run on two hosts: it stays where it may be running
        gives_up=pool.kind != "exclusive",
    )
    if crash_looping.isdisjoint(placement):
        return placement
    measured = context.inputs.measured_hosts
    return {
        host: count
        for host, planned in placement.items()
        if (
            count := min(planned, measured[host].snapshot.pools[pool.name].ready)
            if host in crash_looping
            else planned
        )
    }


def _commanded(
    before: State,
    after: State,
    decided: Sequence[str],
    planned: PlannedWorkers,
    hosts: HostLiveness,
    inputs: Inputs,
    now: float,
) -> tuple[State, frozenset[str]]:
    """The state with what hosts are commanded, and those whose command is sent again."""
    alive = hosts.fresh | hosts.unresponsive | hosts.paused
    repeated = pending.repeated(after.pending, alive, inputs.rules, now)
    if repeated:
        after = msgspec.structs.replace(after, pending={**after.pending, **repeated})
    after = pending.add_commands(before, after, decided, planned.plan, inputs, now)
    return after, frozenset(repeated)


def _movable(pool: Pool, remembered: PoolState, context: RoundContext) -> bool:
    """Moved one at a time, and only a pool that was left alone for a while."""
    every = context.inputs.rules.rebalance_seconds
    if not every or pool.kind in {"exclusive", "spark"} or pool.profile.advisor:
        return False
    return context.now - (remembered.placed_at or context.state.watching_since) >= every


def _shares(claims: list[Claim], context: RoundContext) -> dict[str, dict[str, int]]:
    if context.hosts.all_hosts_lost:  # no host to move anything to: the plan stands
        return {claim.pool: dict(context.state.pools[claim.pool].placement) for claim in claims}
    style, all_pools = context.inputs.rules.placement, context.inputs.due is None
    acting = [claim for claim in claims if not claim.profile.advisor]
    shares = placement.allocate(acting, context.capacities, style, all_pools=all_pools)
    advised = [claim for claim in claims if claim.profile.advisor]
    if advised:
        names = frozenset(claim.pool for claim in advised)
        planned = PlannedWorkers()
        planned.begin(_placed(context.state, shares), context.inputs, context.needs)
        left = headroom.host_capacities(context.hosts, planned, context.inputs, names)
        shares |= placement.allocate(advised, left, style, all_pools=all_pools)
    return shares


def _is_short(
    claims: list[Claim], shares: Mapping[str, Mapping[str, int]], context: RoundContext
) -> bool:
    if any(capacity.crowded for capacity in context.capacities.values()):
        return True
    acting = (claim for claim in claims if not claim.profile.advisor)
    return any(sum(shares[claim.pool].values()) < claim.workers for claim in acting)


def _advised(
    state: State, context: RoundContext, claims: list[Claim], shares: dict[str, dict[str, int]]
) -> tuple[State, list[Notice]]:
    """The state with the advice on the number of hosts. Only a round over all pools can count."""
    hosts = context.hosts
    countable = context.inputs.due is None and not (hosts.all_hosts_lost or hosts.telemetry_gap)
    if not countable or not advice.is_due(state.advice, context.now):
        return state, []
    acting = [claim for claim in claims if not claim.profile.advisor]
    count = advice.count(acting, shares, context.capacities)
    if count is None:
        return state, []
    updated, notices = advice.advise(state.advice, count, context.now)
    return msgspec.structs.replace(state, advice=updated), notices


def _placed(state: State, shares: dict[str, dict[str, int]]) -> State:
    changed = {
        pool: msgspec.structs.replace(state.pools[pool], placement=share)
        for pool, share in shares.items()
    }
    return msgspec.structs.replace(state, pools={**state.pools, **changed})


def _with(state: State, decisions: list[Decision]) -> State:
    changed = {decision.pool: decision.state for decision in decisions}
    return msgspec.structs.replace(state, pools={**state.pools, **changed})
