"""Several hosts: placement, moves, fair share, and who is there."""

from __future__ import annotations

from tests.unit.decider.given import (
    GIB,
    NOW,
    host,
    inputs,
    living,
    one_round,
    pool,
    snapshot,
    state,
    story,
)

from penstock.decider.core.decide import decide
from penstock.decider.core.inputs import Rules
from penstock.decider.core.state import PoolState
from penstock.events.snapshot import HostSnapshot, PoolWorkers

AB = [host("a"), host("b")]


def placed(outcome, name="emails"):
    return outcome.state.pools[name].placement


def told(outcome):
    return [notice.event.__name__ for notice in outcome.notices]


def wants(workers, name="emails", **measured):
    return snapshot(name, arrival_per_second=workers / 2, **measured)


# --- placement --------
def test_spread_and_pack():
    assert placed(one_round(pool(), wants(5), hosts=AB)) == {"a": 3, "b": 2}
    packed = one_round(pool(), wants(5), hosts=AB, rules=Rules(placement="pack"))
    assert placed(packed) == {"a": 5}


def test_what_is_placed_stays():
    outcome = one_round(pool(), wants(6), state(emails={"b": 4}), hosts=AB)
    assert placed(outcome) == {"a": 2, "b": 4}
    assert outcome.plans == {"a": {"emails": 2}, "b": {"emails": 4}}  # c was never heard of


def test_the_fullest_gives_up_first_when_spread_the_emptiest_when_packed():
    before = state(emails={"a": 1, "b": 4})
    assert placed(one_round(pool(), wants(4), before, hosts=AB)) == {"a": 1, "b": 3}
    pack = Rules(placement="pack")
    assert placed(one_round(pool(), wants(4), before, hosts=AB, rules=pack)) == {"b": 4}


def test_an_exclusive_pool_lives_on_one_host():
    three = pool(kind="exclusive", min_workers=3, max_workers=3)
    assert placed(one_round(three, snapshot(), hosts=AB)) == {"a": 3}
    small = [host("a", max_workers=2), host("b")]
    assert placed(one_round(three, snapshot(), hosts=small)) == {"b": 3}
    assert placed(one_round(three, snapshot(), state(emails={"b": 3}), hosts=AB)) == {"b": 3}


# --- who is there --------
def test_a_lost_hosts_share_moves_after_its_lease():
    before = state(emails={"a": 3, "b": 3})
    silent = one_round(pool(), wants(6), before, hosts=AB, host_age={"b": 5.9})
    assert placed(silent) == {"a": 3, "b": 3}
    lost = one_round(pool(), wants(6), before, hosts=AB, host_age={"b": 6.1})
    assert placed(lost) == {"a": 6}
    assert told(lost) == ["HostLost"]
    assert story(lost)[-1] == ("placement", 6)
    assert lost.plans["b"] == {}


def test_a_lost_host_is_told_once_and_greeted_when_it_is_back():
    lost = one_round(pool(), wants(6), state(emails={"a": 3, "b": 3}), hosts=AB, host_age={"b": 7})
    again = one_round(pool(), wants(6), lost.state, hosts=AB, host_age={"b": 9})
    assert told(again) == []
    back = one_round(pool(), wants(6), again.state, hosts=AB)
    assert told(back) == ["HostJoined"]
    assert placed(back) == {"a": 6}


def test_the_only_host_keeps_its_plan_when_it_is_lost():
    outcome = one_round(pool(), wants(9), state(emails={"a": 3}), host_age=60)
    assert placed(outcome) == {"a": 3}
    assert story(outcome) == [("strategy", 9), ("stale", 3)]


def test_nobody_is_lost_while_we_hear_nothing_at_all():
    before = state(emails={"a": 3, "b": 3})
    deaf = one_round(pool(), wants(0), before, hosts=AB, host_age={"a": 60, "b": 61}, age=60)
    assert placed(deaf) == {"a": 3, "b": 3}
    assert told(deaf) == []
    # back again, but b's first snapshot is still on its way
    soon = one_round(pool(), wants(6), deaf.state, hosts=AB, host_age={"b": 62})
    assert placed(soon) == {"a": 3, "b": 3}


def test_a_new_leader_waits_a_lease_before_it_gives_a_host_up():
    fresh = state(watching_since=NOW - 1, emails={"a": 3, "b": 3})
    outcome = one_round(pool(), wants(6), fresh, hosts=[host("a")])
    assert placed(outcome) == {"a": 3, "b": 3}
    later = state(watching_since=NOW - 7, emails={"a": 3, "b": 3})
    assert placed(one_round(pool(), wants(6), later, hosts=[host("a")])) == {"a": 6}


def test_a_silent_host_gets_nothing_new():
    before = state(emails={"b": 1})
    outcome = one_round(pool(), wants(4), before, hosts=AB, host_age={"b": 5.5})
    assert placed(outcome) == {"a": 3, "b": 1}


def test_a_host_that_left_in_order_is_not_lost():
    gone = [host("a"), host("b", draining=True, pools={"emails": living(0)})]
    ages = {"b": 7.0}
    assert told(one_round(pool(), wants(1), hosts=gone, host_age=ages)) == ["HostLeft"]
    killed = [host("a"), host("b", draining=True, pools={"emails": living(2)})]
    assert told(one_round(pool(), wants(1), hosts=killed, host_age=ages)) == ["HostLost"]


def test_a_draining_hosts_share_moves_unless_there_is_no_other():
    before = state(emails={"a": 3, "b": 3})
    leaving = [host("a"), host("b", draining=True)]
    assert placed(one_round(pool(), wants(6), before, hosts=leaving)) == {"a": 6}
    alone = one_round(pool(), wants(9), state(emails={"a": 3}), hosts=[host("a", draining=True)])
    assert placed(alone) == {"a": 3}


def test_room_for_what_a_job_starts_is_kept_and_a_small_host_still_has_its_worker():
    """Host a has 1.5 GiB left, by others' use; on a host of 1 GiB a quarter of that is kept."""
    night = pool("night", kind="exclusive", jobs_memory_bytes=2 * GIB)
    seen = snapshot("night", worker_memory_bytes=GIB // 16)
    full = host("a", memory=16 * GIB, memory_used_bytes=12 * GIB)
    roomy = host("b", memory=16 * GIB, memory_used_bytes=6 * GIB)
    assert placed(one_round(night, seen, hosts=[full, roomy]), "night") == {"b": 1}
    assert placed(one_round(night, seen, hosts=[host("a", memory=GIB)]), "night") == {"a": 1}


def test_an_exclusive_worker_moves_only_when_the_old_one_is_gone():
    before, one = state(emails={"b": 1}), pool(kind="exclusive")
    alive = [host("a"), host("b", draining=True, pools={"emails": living(1)})]
    assert placed(one_round(one, snapshot(), before, hosts=alive)) == {"b": 1}
    gone = [host("a"), host("b", draining=True, pools={"emails": living(0)})]
    assert placed(one_round(one, snapshot(), before, hosts=gone)) == {"a": 1}


def test_no_host_at_all():
    outcome = one_round(pool(), wants(4), hosts=[])
    assert story(outcome) == [("strategy", 4), ("capacity", 0)]
    assert outcome.plans == {}


# --- not enough --------
def room_for(workers, **more):
    """A host on which so many workers fit, whatever they need."""
    return host("a", cores=1000, memory=1000 * GIB, max_workers=workers, **more)


def shares(pools, snapshots, room, before=None, **more):
    outcome = decide(before or state(), inputs(pools, snapshots, [room], **more), NOW)
    return {each.pool: each.target for each in outcome.decisions}, outcome


def test_capacity_is_said_with_its_bound():
    small = host("a", memory=GIB, cores=1000)  # (1 GiB - 256 MiB) x 0.85 / 128 MiB
    outcome = one_round(pool(), wants(12), hosts=[small])
    assert story(outcome) == [("strategy", 12), ("capacity", 5)]
    assert outcome.decisions[0].reasons[-1].text == "5: host a has no memory left for more"


def test_foreign_processes_are_named_where_they_hold_the_cores():
    """Not "other pools": two pools are there, and each could have all of the host otherwise."""
    busy = host("a", cores=4, cpu_busy_cores=4.0, own_cpu_busy_cores=0.4)
    pools, seen = [pool("x"), pool("y")], [wants(6, "x"), wants(1, "y")]
    got, outcome = shares(pools, seen, busy, state(x={"a": 1}, y={"a": 1}))
    assert got == {"x": 1, "y": 1}
    reasons = {reason.rule: reason for reason in outcome.decisions[0].reasons}
    assert "lateness" not in reasons
    assert reasons["other-processes"].text == (
        "1: host a has no cores left for more; processes other than Penstock's workers use 3.6 of "
        "4 cores there"
    )


def test_other_pools_are_named_where_they_have_what_would_fit():
    pools, seen = [pool("x"), pool("y")], [wants(40, "x"), wants(40, "y")]
    _, outcome = shares(pools, seen, room_for(10))
    assert [reason.rule for reason in outcome.decisions[0].reasons][-1] == "lateness"


def test_memory_that_foreign_processes_hold_is_named():
    full = host("a", cores=1000, memory=4 * GIB, memory_used_bytes=3 * GIB)
    outcome = one_round(pool(), wants(12), hosts=[full])
    reason = outcome.decisions[0].reasons[-1]
    assert reason.rule == "other-processes"
    assert "workers use 3 of 4 GiB there" in reason.text


def test_cores_bound_new_workers():
    outcome = one_round(pool(), wants(40), hosts=[host("a", cores=4)])  # 3.5 x 0.9 / 0.2
    assert story(outcome) == [("strategy", 40), ("capacity", 15)]
    swapped = decide(
        state(x={"a": 15}),
        inputs([pool("x"), pool("y")], [wants(40, "x"), wants(40, "y")], [host("a", cores=4)]),
        NOW,
    )
    assert sum(each.target for each in swapped.decisions) == 15


def test_minimums_come_first():
    greedy, modest = pool("greedy"), pool("modest", min_workers=3)
    seen = [wants(100, "greedy", waiting=500, oldest_waiting_seconds=29), snapshot("modest")]
    got, _ = shares([greedy, modest], seen, room_for(10))
    assert got == {"greedy": 7, "modest": 3}


def test_then_a_share_by_expected_lateness_not_all_to_one():
    seen = [wants(10, "x", waiting=100), wants(10, "y", waiting=50)]
    got, outcome = shares([pool("x"), pool("y")], seen, room_for(9))
    assert got["x"] > got["y"] >= 1
    assert sum(got.values()) == 9
    assert story(outcome, "y") == [("strategy", 10), ("capacity", 9), ("fair-share", got["y"])]


def test_a_breach_that_costs_more_weighs_more():
    seen = [wants(10, "x", waiting=100), wants(10, "y", waiting=100)]
    got, _ = shares([pool("x"), pool("y", breach_cost=4)], seen, room_for(10))
    assert got["y"] > got["x"] >= 1


def test_a_newcomer_gets_its_share_from_who_has_all():
    seen = [wants(10, "x"), wants(10, "y")]
    got, _ = shares([pool("x"), pool("y")], seen, room_for(10), state(x={"a": 10}))
    assert got == {"x": 5, "y": 5}


def test_workers_only_held_back_from_going_make_room_first():
    slow = pool("x", scale_down_cooldown_seconds=60)
    before = state(x=PoolState(placement={"a": 8}, up_at=NOW - 1))
    got, _ = shares([slow, pool("y")], [wants(2, "x"), wants(8, "y")], room_for(10), before)
    assert got == {"x": 2, "y": 8}


def test_a_stale_pool_is_not_robbed():
    before = state(x={"a": 8})
    seen = inputs([pool("x"), pool("y")], [wants(10, "y", waiting=99)], [room_for(10)])
    outcome = decide(before, seen, NOW)
    assert {each.pool: each.target for each in outcome.decisions} == {"x": 8, "y": 2}


def test_a_round_for_one_pool_leaves_the_others_alone():
    before, seen = state(x={"a": 8}), [snapshot("x"), wants(10, "y")]
    got, outcome = shares([pool("x"), pool("y")], seen, room_for(10), before, due={"y"})
    assert got == {"y": 2}
    assert outcome.plans["a"] == {"x": 8, "y": 2}


def test_a_busy_neighbour_neither_ends_workers_nor_starves_a_minimum():
    busy = host("a", cores=2, cpu_busy_cores=2)
    kept = one_round(pool(), wants(6), state(emails={"a": 4}), hosts=[busy])
    assert placed(kept) == {"a": 4}
    assert placed(one_round(pool(min_workers=2), wants(6), hosts=[busy])) == {"a": 2}


def test_lost_memory_does_end_workers():
    tight = host("a", memory=GIB, memory_used_bytes=GIB // 2, cores=1000)
    outcome = one_round(pool(), wants(9), state(emails={"a": 8}), hosts=[tight])
    assert placed(outcome) == {"a": 2}  # 1 GiB x (0.85 - 0.5) / 128 MiB, no reserve


def test_a_round_for_one_pool_takes_nothing_from_it_either():
    """The host is overfull: who must go is for the round over all pools to say."""
    tight, before = room_for(5), state(x={"a": 4}, y={"a": 4})
    seen = [wants(4, "x"), wants(4, "y")]
    got, _ = shares([pool("x"), pool("y")], seen, tight, before, due={"y"})
    assert got == {"y": 4}
    got, _ = shares([pool("x"), pool("y")], seen, tight, before)
    assert sum(got.values()) == 5


# --- crash loops ---------------------------------------------------------------------------------
def looping(name: str, ready: int = 0) -> HostSnapshot:
    workers = PoolWorkers(planned=3, started=1, ready=ready, crash_loop=True)
    return host(name, pools={"emails": workers})


def test_a_host_where_workers_end_at_once_gets_none_while_another_takes_them():
    before = state(emails={"a": 3, "b": 3})
    outcome = one_round(pool(), wants(6), before, hosts=[looping("a"), host("b")])
    assert placed(outcome) == {"b": 6}
    reason = outcome.decisions[0].reasons[-1]
    assert reason.text == "moved away from a: its workers end as soon as they start"
    again = one_round(pool(), wants(8), outcome.state, hosts=[looping("a"), host("b")])
    assert placed(again) == {"b": 8}


def test_workers_that_are_ready_there_stay():
    before = state(emails={"a": 3, "b": 3})
    outcome = one_round(pool(), wants(6), before, hosts=[looping("a", ready=2), host("b")])
    assert placed(outcome) == {"a": 2, "b": 4}


def test_where_all_hosts_are_so_or_the_others_are_full_the_plan_stands():
    before = state(emails={"a": 3, "b": 3})
    everywhere = one_round(pool(), wants(6), before, hosts=[looping("a"), looping("b")])
    assert placed(everywhere) == {"a": 3, "b": 3}
    full = [looping("a"), host("b", max_workers=4)]
    outcome = one_round(pool(), wants(6), before, hosts=full)
    assert placed(outcome) == {"a": 2, "b": 4}
    assert placed(one_round(pool(), wants(6), outcome.state, hosts=full)) == {"a": 2, "b": 4}


def test_other_pools_are_placed_there_as_ever():
    outcome = one_round(pool("other"), wants(4, "other"), hosts=[looping("a"), host("b")])
    assert placed(outcome, "other") == {"a": 2, "b": 2}


def test_a_shortage_is_reported_so_that_the_next_round_is_over_all_pools():
    assert not one_round(pool(), wants(5), hosts=AB).short
    assert one_round(pool(), wants(40), hosts=[host("a", cores=4)]).short
    advised = one_round(pool(advisor=True), wants(40), hosts=[host("a", cores=4)])
    assert advised.decisions[0].target < 40
    assert not advised.short


def test_a_host_with_more_than_it_can_carry_is_a_shortage_also_for_other_pools():
    seen = [wants(2, "x"), wants(40, "y", worker_memory_bytes=2 * GIB)]
    planned = state(y={"a": 40})
    pools = [pool("x"), pool("y")]
    crowded = inputs(pools, seen, [host("a", memory=64 * GIB), host("b")], due={"x"})
    assert decide(planned, crowded, NOW).short
    roomy = inputs(pools, seen, [host("a", memory=256 * GIB), host("b")], due={"x"})
    assert not decide(planned, roomy, NOW).short
