"""What one pool asks for: bounds, staleness, policies."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.decider.given import NOW, inputs, one_round, pool, snapshot, state, story

from penstock.config import ConfigError
from penstock.decider.core import registry
from penstock.decider.core.decide import decide
from penstock.decider.core.state import PoolState
from penstock.decider.core.strategy import Demand

BUSY = {"arrival_per_second": 10}  # 20 workers by hybrid


class Says:
    """A strategy of one answer."""

    name = "says"

    def __init__(self, answer) -> None:
        self.answer = answer

    def demand(self, inputs):
        if isinstance(self.answer, Exception):
            raise self.answer
        return Demand(workers=self.answer)


# --- bounds --------
def test_bounds():
    assert story(one_round(pool(max_workers=8), snapshot(**BUSY))) == [
        ("strategy", 20),
        ("bounds", 8),
    ]
    assert story(one_round(pool(min_workers=2), snapshot())) == [("strategy", 0), ("bounds", 2)]


def test_no_more_workers_than_find_something_to_do():
    capped = snapshot(**BUSY, cap=4)
    assert story(one_round(pool(max_workers=8), capped)) == [
        ("strategy", 20),
        ("bounds", 8),
        ("bounds", 4),
    ]
    assert story(one_round(pool(min_workers=6), capped)) == [("strategy", 20), ("bounds", 6)]
    in_pairs = msgspec.structs.replace(pool(), slots=2)
    assert story(one_round(in_pairs, snapshot(**BUSY, cap=3)))[-1] == ("bounds", 2)
    assert story(one_round(pool(), snapshot(**BUSY, cap=20))) == [("strategy", 20)]


def test_figures_of_a_source_are_stale_when_two_looks_are_missing():
    rare = msgspec.structs.replace(pool(), look_seconds=10.0)
    for age, step in ((24.0, "strategy"), (26.0, "stale")):
        late = snapshot(**BUSY, queue_age_seconds=age)
        assert story(one_round(rare, late, age=0.5))[0][0] == step


def test_a_pinned_pool_is_not_scaled_but_its_breach_is_told():
    late = snapshot(waiting=50, oldest_waiting_seconds=90, workers_ready=1)
    outcome = one_round(pool(kind="exclusive"), late)
    assert story(outcome) == [("strategy", 1)]
    assert "SlaBreached" in [notice.event.__name__ for notice in outcome.notices]


def test_fixed_wants_the_minimum():
    outcome = one_round(pool(strategy="fixed", min_workers=3), snapshot(**BUSY))
    assert story(outcome) == [("strategy", 3)]


# --- stale or missing: never lower --------
@pytest.mark.parametrize(
    ("seen", "age"),
    [(snapshot(), 6.0), (snapshot(**BUSY), 60.0), (snapshot(queue_age_seconds=5), 0.5)],
    ids=["old zero", "old load", "fresh snapshot of an old measurement"],
)
def test_the_plan_stands_on_stale_measurements(seen, age):
    outcome = one_round(pool(), seen, state(emails={"a": 7}), age=age)
    assert story(outcome) == [("stale", 7)]
    assert "old" in outcome.decisions[0].reasons[0].text
    assert outcome.decisions[0].predicted_pickup_seconds is None


def test_the_plan_stands_when_nothing_was_measured():
    outcome = decide(state(emails={"a": 7}), inputs([pool()], []), NOW)
    assert story(outcome) == [("stale", 7)]
    from_nothing = decide(state(), inputs([pool(min_workers=2)], []), NOW)
    assert story(from_nothing) == [("stale", 0), ("bounds", 2)]


@pytest.mark.parametrize(
    "gap",
    [
        {"arrival_per_second": None},
        {"waiting": 3, "oldest_waiting_seconds": None},
        {"waiting": 3, "job_seconds": None},
    ],
    ids=["arrival rate", "age of the oldest", "job time"],
)
def test_a_gap_in_a_fresh_snapshot_never_lowers_but_may_raise(gap):
    lower = one_round(pool(), snapshot(**gap), state(emails={"a": 200}))
    assert lower.decisions[0].target == 200
    assert lower.decisions[0].reasons[-1].rule == "incomplete"
    late = {"waiting": 100, "oldest_waiting_seconds": 40, **gap}
    higher = one_round(pool(), snapshot(**late), state(emails={"a": 2}))
    assert higher.decisions[0].target >= 2


def test_an_idle_pool_without_any_measured_job_still_shrinks():
    outcome = one_round(pool(), snapshot(job_seconds=None), state(emails={"a": 4}))
    assert outcome.decisions[0].target == 3


# --- a strategy that fails --------
@pytest.mark.parametrize(
    "answer", [ZeroDivisionError("oops"), float("nan"), -1, float("inf"), "many"]
)
def test_a_strategy_that_fails_leaves_the_plan(answer):
    outcome = one_round(
        pool(strategy="says"), snapshot(), state(emails={"a": 7}), strategies={"says": Says(answer)}
    )
    assert story(outcome) == [("strategy", 7)]
    assert "raised" in outcome.decisions[0].reasons[0].text


@pytest.mark.parametrize("wanted", [1_000_000.5, 5e6, 1e300])
def test_a_demand_beyond_all_bounds_is_the_maximum(wanted):
    outcome = one_round(
        pool(strategy="says", max_workers=9), snapshot(), strategies={"says": Says(wanted)}
    )
    assert story(outcome)[:2] == [("strategy", 1_000_000), ("bounds", 9)]


def test_a_strategy_without_reasons_gets_one():
    outcome = one_round(pool(strategy="says"), snapshot(), strategies={"says": Says(2.3)})
    assert story(outcome) == [("strategy", 3)]


def test_an_unknown_strategy_is_refused_at_the_start():
    pools = {"emails": pool(strategy="hybrd")}
    with pytest.raises(ConfigError, match="did you mean 'hybrid'"):
        registry.check(pools, registry.BUILTIN)


# --- policies --------
def stepped(up=None, down=None, workers=8):
    return PoolState(
        placement={"a": workers},
        up_at=None if up is None else NOW - up,
        down_at=None if down is None else NOW - down,
    )


@pytest.mark.parametrize(
    ("before", "workers"),
    [
        (stepped(), 6),
        (stepped(down=29), 8),
        (stepped(down=31), 6),
        (stepped(up=29, down=100), 8),
        (stepped(workers=1), 0),
        (stepped(workers=3), 2),
    ],
    ids=["a quarter", "cooldown", "after it", "after a step up too", "at least one", "of three"],
)
def test_down_goes_gently(before, workers):
    outcome = one_round(pool(scale_down_cooldown_seconds=30), snapshot(), state(emails=before))
    assert outcome.decisions[0].target == workers


def test_busy_workers_are_not_planned_away():
    seen = snapshot(workers_ready=8, workers_idle=1, running=7)
    outcome = one_round(pool(), seen, state(emails={"a": 8}))
    assert story(outcome) == [("strategy", 0), ("policy", 6), ("policy", 7)]


def test_up_waits_for_its_cooldown_but_not_through_a_breach():
    held = pool(scale_up_cooldown_seconds=60)
    calm = one_round(held, snapshot(**BUSY), state(emails=stepped(up=5)))
    assert story(calm) == [("strategy", 20), ("cooldown", 8)]
    late = snapshot(waiting=100, oldest_waiting_seconds=25)
    assert one_round(held, late, state(emails=stepped(up=5))).decisions[0].target == 40


def test_a_step_is_remembered_by_direction():
    up = one_round(pool(), snapshot(**BUSY), state(emails=stepped(down=5)))
    assert (up.state.pools["emails"].up_at, up.state.pools["emails"].down_at) == (NOW, NOW - 5)
    down = one_round(pool(), snapshot(), state(emails=stepped(up=5)))
    assert (down.state.pools["emails"].up_at, down.state.pools["emails"].down_at) == (NOW - 5, NOW)
