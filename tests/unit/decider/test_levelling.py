"""A host that comes, or comes back, gets its part of the pools that are spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.given import NOW, host, inputs, pool, snapshot, state

from penstock.decider.core.decide import Outcome, decide
from penstock.decider.core.inputs import Rules
from penstock.decider.core.state import PoolState, State

SECONDS = 10.0
RULES = Rules(rebalance_seconds=SECONDS)


def left_alone(seconds: float, **placement: int) -> State:
    return state(emails=PoolState(placement=placement, placed_at=NOW - seconds))


def one_round(before: State, kind: str = "queue", **more: Any) -> Outcome:
    """Of a pool that keeps the number of workers it has, on three hosts."""
    workers = sum(before.pools["emails"].placement.values())
    kept = pool(kind=kind, strategy="fixed", min_workers=workers, max_workers=workers)
    more.setdefault("hosts", [host("a"), host("b"), host("c")])
    more.setdefault("rules", RULES)
    return decide(before, inputs([kept], [snapshot()], **more), NOW)


def placed(outcome: Outcome) -> Mapping[str, int]:
    return outcome.state.pools["emails"].placement


def test_one_worker_moves_to_the_host_with_fewest():
    outcome = one_round(left_alone(SECONDS, a=3, b=1))
    assert placed(outcome) == {"a": 2, "b": 1, "c": 1}
    [reason] = [each for each in outcome.decisions[0].reasons if each.step == "placement"]
    assert (reason.rule, reason.text) == ("level", "moved to c, which had fewer")


def test_the_next_one_waits():
    first = one_round(left_alone(SECONDS, a=6))
    assert placed(first)["a"] == 5
    assert placed(one_round(first.state)) == placed(first)


@pytest.mark.parametrize(
    ("before", "more"),
    [
        (left_alone(SECONDS, a=2, b=1, c=1), {}),
        (left_alone(SECONDS - 1, a=3), {}),
        (left_alone(SECONDS, a=3), {"rules": Rules()}),
        (left_alone(SECONDS, a=3), {"rules": Rules(placement="pack", rebalance_seconds=SECONDS)}),
        (left_alone(SECONDS, a=3), {"kind": "spark"}),
        (left_alone(SECONDS, a=3), {"hosts": [host("a"), host("b", memory=1024)]}),
        (left_alone(SECONDS, a=3), {"host_age": {"a": 5.9}}),
    ],
    ids=[
        "even",
        "changed lately",
        "switched off",
        "packed",
        "serves Spark",
        "no room elsewhere",
        "a silent host's share",
    ],
)
def test_what_stays(before: State, more: Any):
    assert placed(one_round(before, **more)) == before.pools["emails"].placement


@given(st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1))
def test_it_ends_even_with_as_many_workers_and_moves_no_more(share: dict[str, int]):
    current = left_alone(SECONDS, **share)
    for _ in range(sum(share.values()) + 1):
        now = placed(one_round(current))
        assert sum(now.values()) == sum(share.values())
        current = left_alone(SECONDS, **now)
    counts = [now.get(name, 0) for name in "abc"]
    assert max(counts) - min(counts) <= 1
