"""An operator's orders in decisions: held pools, paused and drained hosts, replayed bit for bit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.decider.given import (
    NOW,
    host,
    inputs,
    living,
    pool,
    snapshot,
    state,
    story,
)
from tests.unit.decider.recorded import Log

from penstock.decider.core.decide import Outcome, decide
from penstock.decider.replay import stretches
from penstock.events.orders import (
    NO_ORDERS,
    Hold,
    HostDrained,
    HostPaused,
    HostResumed,
    HostStanding,
    Orders,
    PoolHeld,
    PoolReleased,
    hold_bounds,
    in_force,
)

AB = [host("a"), host("b")]


def held(at_least: int = 0, at_most: int | None = None, until: float = NOW + 60) -> Orders:
    hold = Hold(until=until, at_least=at_least, at_most=at_most, by="cli/ann", reason="month end")
    return Orders(holds={"emails": hold})


def hosts_in(**states: Any) -> Orders:
    return Orders(hosts={name: HostStanding(state=one, by="ann") for name, one in states.items()})


def decided(orders: Orders, *, workers: int = 0, before: Any = None, **given: Any) -> Outcome:
    """A round of pool `emails` whose strategy wants ``workers``."""
    one = given.pop("pool", pool())
    hosts = given.pop("hosts", AB)
    seen = snapshot("emails", arrival_per_second=workers / 2)
    whole = inputs([one], [seen], hosts, **given)
    return decide(before or state(), msgspec.structs.replace(whole, orders=orders), NOW)


def target(outcome: Outcome) -> int:
    return outcome.decisions[0].target


# --- holds ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("orders", "wanted", "expected"),
    [
        (held(5, 5), 0, 5),
        (held(5, 5), 9, 5),
        (held(5), 9, 9),
        (held(5), 2, 5),
        (held(at_most=3), 9, 3),
        (held(at_most=0), 9, 0),
        (held(2, 4), 3, 3),
        (held(5, 5, until=NOW), 9, 9),
    ],
)
def test_a_hold_bounds_what_the_strategy_wants_until_it_ends(orders, wanted, expected):
    assert target(decided(orders, workers=wanted)) == expected


def test_the_hold_is_a_step_of_its_own_also_where_it_changes_nothing():
    outcome = decided(held(5, 5), workers=5)
    assert story(outcome)[-1] == ("hold", 5)
    reason = outcome.decisions[0].reasons[-1]
    assert reason.text == "5: held at 5 until 1970-01-12 13:47:40 UTC by cli/ann: month end"


def test_a_hold_stands_above_bounds_cooldowns_and_stale_measurements():
    slow = pool(max_workers=3, scale_up_cooldown_seconds=600, policies=("cooldown",))
    before = state(emails={"a": 2})
    assert target(decided(held(8, 8), workers=2, before=before, pool=slow)) == 8
    assert target(decided(held(8, 8), before=before, age=99)) == 8
    assert target(decided(held(at_most=1), before=before, age=99)) == 1


def test_hosts_still_bound_a_hold():
    outcome = decided(held(8, 8), hosts=[host("a", max_workers=3)])
    assert target(outcome) == 3
    assert story(outcome)[-2:] == [("hold", 8), ("capacity", 3)]


def test_a_held_pool_comes_before_what_others_merely_want():
    rules = inputs([pool()], []).rules
    greedy = pool("other", min_workers=0)
    whole = inputs(
        [pool(), greedy],
        [snapshot("emails"), snapshot("other", arrival_per_second=50.0)],
        [host("a", max_workers=6)],
        rules=rules,
    )
    outcome = decide(state(), msgspec.structs.replace(whole, orders=held(4)), NOW)
    targets = {decision.pool: decision.target for decision in outcome.decisions}
    assert targets == {"emails": 4, "other": 2}


def test_a_pinned_pool_is_not_held():
    pinned = pool(kind="exclusive")
    assert target(decided(held(5, 5), pool=pinned)) == 1


# --- hosts ---------------------------------------------------------------------------------------
def placement(outcome: Outcome) -> dict[str, int]:
    return outcome.state.pools["emails"].placement


def test_a_paused_host_keeps_its_workers_and_gets_none():
    before = state(emails={"a": 2})
    assert placement(decided(hosts_in(a="paused"), workers=5, before=before)) == {"a": 2, "b": 3}


def test_a_drained_hosts_workers_move():
    before = state(emails={"a": 4, "b": 1})
    outcome = decided(hosts_in(a="drained"), workers=5, before=before)
    assert placement(outcome) == {"b": 5}
    assert outcome.plans["a"] == {}
    assert outcome.decisions[0].reasons[-1].text == "moved away from a: drained by an operator"


def test_a_drained_host_is_emptied_even_where_no_other_takes_its_workers():
    before = state(emails={"a": 4})
    outcome = decided(hosts_in(a="drained"), workers=4, before=before, hosts=[host("a")])
    assert placement(outcome) == {}
    texts = [reason.text for reason in outcome.decisions[0].reasons]
    assert "0: no host takes workers, as an operator pauses or drains a" in texts


def test_a_resumed_host_takes_workers_at_once():
    assert placement(decided(NO_ORDERS, workers=4)) == {"a": 2, "b": 2}


def test_an_exclusive_pool_ends_on_the_drained_host_before_it_starts_elsewhere():
    pinned, before = pool(kind="exclusive"), state(emails={"a": 1})
    busy = [host("a", pools={"emails": living(1)}), host("b")]
    first = decided(hosts_in(a="drained"), pool=pinned, before=before, hosts=busy)
    assert placement(first) == {}
    second = decided(hosts_in(a="drained"), pool=pinned, before=first.state, hosts=busy)
    assert placement(second) == {}
    assert "0 until its worker on a" in second.decisions[0].reasons[-1].text
    third = decided(hosts_in(a="drained"), pool=pinned, before=second.state)
    assert placement(third) == {"b": 1}


def test_a_drained_host_that_falls_silent_keeps_its_share_until_its_lease_ends():
    before = state(emails={"a": 2, "b": 1})
    ages = {"a": 5.5, "b": 0.5}
    outcome = decided(hosts_in(a="drained"), workers=3, before=before, host_age=ages)
    assert placement(outcome) == {"a": 2, "b": 1}


# --- the log -------------------------------------------------------------------------------------
def test_orders_are_the_last_event_of_each_pool_and_host():
    at = datetime.fromtimestamp(NOW, UTC)
    hold = PoolHeld(pool="emails", until=at + timedelta(hours=1), at_least=2, at_most=2)
    events = [
        hold,
        PoolHeld(pool="over", until=at - timedelta(seconds=1), at_least=9),
        PoolHeld(pool="released", until=at + timedelta(hours=1), at_least=9),
        PoolReleased(pool="released"),
        HostPaused(host="b"),
        HostDrained(host="a", reason="kernel"),
        HostPaused(host="c"),
        HostResumed(host="c"),
    ]
    orders = in_force(events, NOW)
    assert orders == Orders(
        holds={"emails": Hold(until=NOW + 3600, at_least=2, at_most=2)},
        hosts={
            "a": HostStanding(state="drained", reason="kernel"),
            "b": HostStanding(state="paused"),
        },
    )
    assert list(orders.hosts) == ["a", "b"]


@pytest.mark.parametrize(
    ("bounds", "text"),
    [
        ((5, 5), "at 5"),
        ((5, None), "at 5 or more"),
        ((0, 5), "at 5 or fewer"),
        ((2, 5), "at 2 to 5"),
    ],
)
def test_bounds_as_text(bounds, text):
    assert hold_bounds(*bounds) == text


def test_rounds_under_changing_orders_are_recomputed_bit_for_bit(tmp_path: Path):
    log = Log()
    changes = {
        10: held(7, 7, until=NOW + 25),
        20: Orders(holds=held(7, 7, until=NOW + 25).holds, hosts=hosts_in(a="paused").hosts),
        40: hosts_in(a="drained"),
        50: NO_ORDERS,
    }
    orders, targets = NO_ORDERS, {}
    for second in range(60):
        orders = changes.get(second, orders)
        log.round(second, 5.0, orders=orders)
        targets[second] = log.state.pools["emails"].workers
    assert (targets[9], targets[15], targets[30]) == (10, 7, 7)
    verdict = stretches.verify(log.write(tmp_path / "log"))
    assert verdict.is_equal, verdict.differences
    assert verdict.rounds == 60
