"""What holds whatever the policies say, and whoever is only advised."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.given import NOW
from tests.unit.decider.test_decider_properties import NAMES, load, rounds

from penstock.decider.core.decide import decide
from penstock.decider.core.hosts.capacity import budget, worker_need
from penstock.decider.core.inputs import Inputs
from penstock.decider.core.policies.policy import Policy, Proposal, Verdict
from penstock.decider.core.policies.shipped import SHIPPED
from penstock.decider.core.state import PoolState, State, dump

OPTIONS: dict[str, dict[str, Any]] = {
    "budget-cap": {"worker_hours_per_day": 10},
    "quiet-hours": {"start": "00:00", "end": "00:00", "max_workers": 4},
    "flap-budget": {"reversals_per_hour": 1},
}


def lift(proposal: Proposal) -> Verdict:
    return Verdict(workers=proposal.workers + 1000, text="more")


def nothing(proposal: Proposal) -> Verdict:
    return Verdict(workers=0, text="none")


def veto(proposal: Proposal) -> Verdict:
    return Verdict(workers=proposal.current, text="no")


def moody(proposal: Proposal, *_: Any) -> Any:
    raise RuntimeError(proposal.pool)


OWN = {
    "lift": Policy(name="lift", before=lift),
    "nothing": Policy(name="nothing", before=nothing),
    "veto": Policy(name="veto", before=veto, caps=True),
    "moody": Policy(name="moody", before=moody, after=moody),
}
POLICIES = {**SHIPPED, **OWN}


@st.composite
def governed(draw) -> tuple[State, Inputs]:
    """A round in which each pool has any policies, and may be in advisor mode."""
    before, found = draw(rounds())
    pools = {
        name: msgspec.structs.replace(
            each,
            profile=msgspec.structs.replace(
                each.profile,
                policies=tuple(draw(st.lists(st.sampled_from(sorted(POLICIES)), unique=True))),
                policy_options=OPTIONS,
                advisor=draw(st.booleans()),
            ),
        )
        for name, each in found.pools.items()
    }
    return before, msgspec.structs.replace(found, pools=pools, policies=POLICIES)


@given(governed())
def test_the_chain_adds_up_and_bounds_hold(given_round):
    before, found = given_round
    for decision in decide(before, found, NOW).decisions:
        profile, reasons = found.pools[decision.pool].profile, decision.reasons
        assert reasons[-1].workers == decision.target == sum(decision.placement.values())
        for earlier, later in pairwise(reasons):
            assert later.values.get("from", later.workers) == earlier.workers
        steps = {reason.step for reason in reasons}
        assert decision.target <= profile.max_workers or "stale" in steps
        assert decision.target >= profile.min_workers or steps & {"capacity", "fair-share", "stale"}


@given(governed())
def test_no_host_is_asked_for_more_than_it_carries(given_round):
    before, found = given_round
    found = msgspec.structs.replace(found, due=None)
    outcome = decide(before, found, NOW)
    needs = {
        name: worker_need(
            seen.snapshot if (seen := found.measured_pools.get(name)) else None, each.profile
        )
        for name, each in found.pools.items()
    }
    for name, seen in found.measured_hosts.items():
        counts = {pool: each.placement.get(name, 0) for pool, each in before.pools.items()}
        earlier, now = load(counts, needs), load(outcome.plans[name], needs)
        if seen.snapshot.draining or now.workers <= earlier.workers:
            continue
        limit = budget(seen.snapshot, found.rules, earlier)
        kept = any(each.profile.advisor and counts.get(p) for p, each in found.pools.items())
        assert now.workers <= limit.workers or kept
        assert now.memory_bytes <= limit.memory_bytes * 1.001 or kept


@given(governed())
def test_a_pool_that_is_only_advised_keeps_its_plan(given_round):
    before, found = given_round
    outcome = decide(before, found, NOW)
    for name in NAMES:
        if found.pools[name].profile.advisor:
            after = outcome.state.pools[name]
            assert after.placement == before.pools[name].placement
            assert (after.up_at, after.down_at) == (
                before.pools[name].up_at,
                before.pools[name].down_at,
            )
            for host, plan in outcome.plans.items():
                assert plan.get(name, 0) == before.pools[name].placement.get(host, 0)


@given(governed())
def test_an_advised_pool_takes_no_room_from_the_others(given_round):
    """What the others get is what they would get if its plan stood for another reason."""
    before, found = given_round
    others = {name: each for name, each in found.pools.items() if not each.profile.advisor}
    acting = msgspec.structs.replace(
        found, due=frozenset(others) & (found.due or frozenset(others))
    )
    with_advice = decide(
        before, msgspec.structs.replace(found, due=found.due or frozenset(NAMES)), NOW
    )
    alone = decide(before, acting, NOW)
    targets = {each.pool: each.target for each in with_advice.decisions}
    assert all(targets[each.pool] == each.target for each in alone.decisions)


@given(governed())
def test_the_next_round_is_the_same_after_a_leader_change(given_round):
    before, found = given_round
    state = decide(before, found, NOW).state
    encode = msgspec.json.Encoder(order="deterministic").encode
    reread = msgspec.structs.replace(
        state,
        pools={
            name: msgspec.convert(msgspec.json.decode(encode(dump(each))), PoolState)
            for name, each in state.pools.items()
        },
    )
    later = NOW + 1
    assert encode(decide(reread, found, later).decisions) == encode(
        decide(state, found, later).decisions
    )
