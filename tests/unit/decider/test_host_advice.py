"""How many hosts are needed: told when it has been so for a while, and once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.given import GIB, NOW, host, pool, snapshot
from tests.unit.decider.playing import Wants

from penstock.decider.core.decide import decide
from penstock.decider.core.inputs import Inputs, MeasuredHost, MeasuredPool, Rules
from penstock.decider.core.state import State

Told = list[tuple[float, dict[str, Any]]]


def told(
    wanted: Callable[[float], int],
    hosts: Callable[[float], int],
    seconds: float,
    step: float = 10.0,
    advisor: bool = False,
) -> Told:
    """Rounds each few seconds, with hosts that carry ten workers each; what was advised, when."""
    state, found = State(watching_since=NOW - 100), Told()
    one = pool(strategy="wants", policies=(), memory_bytes=GIB, cpu_cores=0.01, advisor=advisor)
    for number in range(int(seconds / step)):
        at = number * step
        now = NOW + at
        there = [host(f"h{index}", max_workers=10) for index in range(hosts(at))]
        inputs = Inputs(
            pools={one.name: one},
            measured_pools={one.name: MeasuredPool(snapshot(), now)},
            measured_hosts={each.host: MeasuredHost(each, now) for each in there},
            strategies={"wants": Wants(wanted(at))},
            rules=Rules(),
        )
        outcome = decide(state, inputs, now)
        state = outcome.state
        found += [
            (at, notice.fields)
            for notice in outcome.notices
            if notice.event.__name__ == "HostCountAdvised"
        ]
    return found


def test_too_few_hosts_are_told_after_a_minute_and_once():
    ((at, fields),) = told(lambda at: 45, lambda at: 3, 1200)
    assert 60 <= at <= 75
    assert (fields["hosts"], fields["needed"]) == (3, 5)
    assert fields["short_workers"] == {"emails": 15}
    assert "15 of emails fit nowhere" in fields["text"]


def test_a_short_rush_is_not_told():
    assert told(lambda at: 45 if 100 <= at < 150 else 25, lambda at: 3, 600) == []


def test_hosts_that_are_not_needed_are_told_after_ten_minutes():
    ((at, fields),) = told(lambda at: 12, lambda at: 4, 2400)
    assert 600 <= at <= 620
    assert fields["needed"] == 2
    assert told(lambda at: 38 if at % 300 < 20 else 12, lambda at: 4, 2400) == []


def test_once_the_hosts_are_there_nothing_more_is_told():
    ((_, fields),) = told(lambda at: 45, lambda at: 3 if at < 120 else 5, 2400)
    assert fields["needed"] == 5


def test_when_the_load_is_gone_the_hosts_may_go_again():
    (_, more), (_, fewer) = told(
        lambda at: 45 if at < 600 else 5, lambda at: 3 if at < 120 else 5, 3600
    )
    assert (more["needed"], fewer["needed"]) == (5, 1)


def test_what_is_only_advised_needs_no_host():
    assert told(lambda at: 45, lambda at: 1, 600, advisor=True) == []


def test_more_hosts_do_not_help_a_worker_that_is_too_large_for_each():
    one = pool(strategy="wants", policies=(), memory_bytes=GIB)
    state, texts = State(watching_since=NOW - 100), []
    for number in range(10):
        now = NOW + number * 10
        inputs = Inputs(
            pools={one.name: one},
            measured_pools={one.name: MeasuredPool(snapshot(), now)},
            measured_hosts={"a": MeasuredHost(host("a", memory=GIB), now)},
            strategies={"wants": Wants(3)},
            rules=Rules(),
        )
        outcome = decide(state, inputs, now)
        state = outcome.state
        texts += [each.fields.get("text") for each in outcome.notices]
    assert not any(text and "hosts are needed" in text for text in texts)


@given(st.lists(st.integers(0, 60), min_size=6, max_size=20), st.integers(1, 5))
def test_it_never_flaps(loads, hosts):
    """Whatever the load does, advice in opposite directions is ten minutes apart."""
    found = told(lambda at: loads[int(at // 120) % len(loads)], lambda at: hosts, 1800, step=20)
    for (earlier, before), (later, after) in pairwise(found):
        assert before["needed"] != after["needed"]
        apart = 600 if after["needed"] < before["needed"] else 60
        assert later - earlier >= apart


@pytest.mark.parametrize("wanted", [0, 5, 30])
def test_the_advice_is_kept_as_plain_values(wanted):
    inputs = Inputs(
        pools={"emails": pool(strategy="wants")},
        measured_pools={"emails": MeasuredPool(snapshot(), NOW)},
        measured_hosts={"a": MeasuredHost(host("a", max_workers=10), NOW)},
        strategies={"wants": Wants(wanted)},
        rules=Rules(),
    )
    state = decide(State(watching_since=NOW - 100), inputs, NOW).state
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(state)), State) == state
