"""What holds for every round, whatever is measured."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.given import GIB, NOW, host, pool, snapshot

from penstock.decider.core.decide import decide
from penstock.decider.core.hosts.capacity import Budget, budget, worker_need
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.state import PoolState, State, dump

NAMES = ("p", "q", "r")
HOSTS = ("a", "b")
ages = st.sampled_from([0.0, 0.5, 4.0, 5.5, 7.0, 100.0])


@st.composite
def pools(draw, name):
    kind = draw(st.sampled_from(["queue", "queue", "queue", "exclusive"]))
    if kind == "exclusive":
        return pool(name, kind)
    least = draw(st.integers(0, 5))
    return pool(
        name,
        strategy=draw(st.sampled_from(sorted(BUILTIN))),
        min_workers=least,
        max_workers=least + draw(st.integers(0, 40)),
        scale_down_cooldown_seconds=draw(st.sampled_from([0, 30])),
        scale_up_cooldown_seconds=draw(st.sampled_from([0, 30])),
        breach_cost=draw(st.sampled_from([1, 5])),
        memory_bytes=draw(st.sampled_from([GIB // 8, GIB])),
    )


@st.composite
def measured(draw, name):
    ready = draw(st.integers(0, 20))
    return snapshot(
        name,
        waiting=draw(st.integers(0, 300)),
        oldest_waiting_seconds=draw(st.sampled_from([None, 0.0, 10.0, 25.0, 29.9, 31.0, 500.0])),
        arrival_per_second=draw(st.sampled_from([None, 0.0, 0.3, 7.0])),
        job_seconds=draw(st.sampled_from([None, 0.0, 0.01, 2.0, 60.0])),
        workers_ready=ready,
        workers_idle=draw(st.integers(0, ready)),
        worker_cpu_cores=draw(st.sampled_from([None, 0.0, 0.9])),
        worker_age_seconds=draw(st.sampled_from([None, 0.2])),
    )


@st.composite
def states(draw):
    times = st.sampled_from([None, NOW - 1, NOW - 100])
    counts = st.dictionaries(st.sampled_from([*HOSTS, "gone"]), st.integers(1, 12))
    return State(
        pools={
            name: PoolState(
                placement=draw(counts),
                up_at=draw(times),
                down_at=draw(times),
                breached_at=draw(times),
            )
            for name in NAMES
        },
        joined=frozenset(HOSTS),
        watching_since=NOW - draw(ages),
    )


@st.composite
def rounds(draw):
    """A state and the inputs of a round; anything may be missing or old."""
    seen = {name: MeasuredPool(draw(measured(name)), NOW - draw(ages)) for name in NAMES}
    for name in draw(st.sets(st.sampled_from(NAMES), max_size=1)):
        del seen[name]
    hosts = {
        name: MeasuredHost(
            host(
                name,
                cores=draw(st.sampled_from([1, 4, 32])),
                memory=draw(st.integers(0, 32)) * GIB,
                cpu_busy_cores=draw(st.sampled_from([0, 1, 4])),
                memory_used_bytes=draw(st.integers(0, 8)) * GIB,
                max_workers=draw(st.sampled_from([None, 3, 15])),
                draining=draw(st.booleans()),
            ),
            NOW - draw(ages),
        )
        for name in HOSTS
    }
    due = draw(st.none() | st.frozensets(st.sampled_from(NAMES), min_size=1))
    found = Inputs(
        pools={name: draw(pools(name)) for name in NAMES},
        measured_pools=seen,
        measured_hosts=hosts,
        strategies=BUILTIN,
        rules=Rules(placement=draw(st.sampled_from(["spread", "pack"]))),
        due=due,
    )
    return draw(states()), found


@given(rounds())
def test_the_chain_adds_up(given_round):
    before, found = given_round
    for decision in decide(before, found, NOW).decisions:
        assert decision.reasons[-1].workers == decision.target == sum(decision.placement.values())
        for earlier, later in zip(decision.reasons, decision.reasons[1:], strict=False):
            assert later.values.get("from", later.workers) == earlier.workers
        assert decision.current == before.pools[decision.pool].workers
        assert all(reason.text for reason in decision.reasons)


@given(rounds())
def test_bounds_hold(given_round):
    before, found = given_round
    for decision in decide(before, found, NOW).decisions:
        profile = found.pools[decision.pool].profile
        kept = decision.reasons[-1].step == "stale"  # no host is heard of: all of it stands
        assert decision.target <= profile.max_workers or kept
        hard = {"capacity", "fair-share", "stale"}
        lowered = any(reason.step in hard for reason in decision.reasons)
        assert decision.target >= profile.min_workers or lowered


@given(rounds())
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
        earlier = load({p: s.placement.get(name, 0) for p, s in before.pools.items()}, needs)
        now = load(outcome.plans[name], needs)
        if now.workers <= earlier.workers and NOW - seen.at > 5:
            continue  # silent: it keeps what it has
        limit = budget(seen.snapshot, found.rules, earlier)
        anchored = seen.snapshot.draining
        assert now.workers <= limit.workers or anchored
        assert now.memory_bytes <= limit.memory_bytes * 1.001 or anchored


def load(counts, needs):
    return Budget(
        sum(needs[name].cpu_cores * count for name, count in counts.items()),
        sum(needs[name].memory_bytes * count for name, count in counts.items()),
        sum(counts.values()),
    )


@given(rounds())
def test_stale_or_missing_never_lowers(given_round):
    """With the hosts there, bounds that allow it and room for it."""
    before, found = given_round
    present = {name: MeasuredHost(host(name), NOW) for name in (*HOSTS, "gone")}
    found = msgspec.structs.replace(found, measured_hosts=present)
    for decision in decide(before, found, NOW).decisions:
        seen, each = found.measured_pools.get(decision.pool), found.pools[decision.pool]
        if each.scalable and (seen is None or NOW - seen.at > found.rules.stale_seconds):
            assert decision.target >= min(decision.current, each.profile.max_workers)


@given(rounds())
def test_a_decision_can_be_recomputed(given_round):
    """Bit for bit, also from a state that went through a decision event."""
    before, found = given_round
    first = decide(before, found, NOW)
    encode = msgspec.json.Encoder(order="deterministic").encode
    reread = msgspec.structs.replace(
        before,
        pools={
            name: msgspec.convert(msgspec.json.decode(encode(dump(each))), PoolState)
            for name, each in before.pools.items()
        },
    )
    assert encode(decide(reread, found, NOW).decisions) == encode(first.decisions)
