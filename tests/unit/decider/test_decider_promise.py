"""Predicted pickup times, and the promise watched."""

from __future__ import annotations

import pytest
from tests.unit.decider.given import NOW, pool, snapshot, took

from penstock.decider.core import breach
from penstock.decider.core.pickup import Outlook, outlook
from penstock.decider.core.state import PoolState
from penstock.events.snapshot import Budget

READY = {"workers_ready": 4, "workers_idle": 0}


@pytest.mark.parametrize(
    ("measured", "workers", "seconds"),
    [
        ({"workers_ready": 1, "workers_idle": 1}, 1, 0.0),
        ({"waiting": 7, **READY}, 4, 4.0),
        ({"waiting": 7, "workers_ready": 4, "workers_idle": 4}, 4, 2.0),
        ({"waiting": 7, **READY}, 2, 8.0),
        ({"waiting": 3, "spawn": took(5.0)}, 4, 5.0),
        ({"waiting": 7, "spawn": took(5.0)}, 4, 7.0),
        ({"waiting": 7, **READY, "spawn": took(1.0)}, 8, 1.5),
        ({"waiting": 7}, 0, None),
    ],
    ids=[
        "an idle worker takes it at once",
        "eighth in line, four workers of 2 s",
        "four of them are free",
        "two are on their way out",
        "nobody ready: one spawn time",
        "and a second round",
        "half of them start now",
        "nobody, ever",
    ],
)
def test_predicted_pickup(measured, workers, seconds):
    assert outlook(snapshot(**measured), workers, 30.0).arriving_seconds == seconds


def test_the_oldest_has_waited_already():
    seen = snapshot(waiting=7, oldest_waiting_seconds=20, **READY)
    assert outlook(seen, 4, 30.0).oldest_seconds == 20.5
    assert outlook(seen, 0, 30.0) == Outlook(arriving_seconds=None, oldest_seconds=20)


HELD_UP = {"waiting": 1529, "job_seconds": 0.001, "throughput_per_second": 65.0, "workers_ready": 1}


def test_late_jobs_that_are_held_up_go_on_as_slowly_as_they_ended():
    late = snapshot(oldest_waiting_seconds=73.0, **HELD_UP)
    assert outlook(late, 1, 30.0).arriving_seconds == pytest.approx(1530 / 65)
    young = snapshot(oldest_waiting_seconds=3.0, **HELD_UP)
    assert outlook(young, 1, 30.0).arriving_seconds == pytest.approx(1.53)
    busy = snapshot(**{**HELD_UP, "job_seconds": 0.01}, oldest_waiting_seconds=73.0)
    assert outlook(busy, 1, 30.0).arriving_seconds == pytest.approx(15.3)  # about as they run


def follow(*steps: tuple[float, float, float]) -> list[tuple[float, str]]:
    """(seconds later, age of the oldest, predicted) ► what was told when. The promise is 30 s."""
    state, told = PoolState(), []
    for later, oldest, predicted in steps:
        seen = snapshot(waiting=1 if oldest else 0, oldest_waiting_seconds=oldest)
        expected = Outlook(arriving_seconds=predicted, oldest_seconds=oldest)
        state, notices = breach.watch(state, seen, pool().profile, expected, NOW + later)
        told += [(later, notice.event.__name__) for notice in notices]
    return told


def test_a_prediction_is_told_when_it_begins_and_every_half_minute():
    assert follow((0, 1, 40), (1, 1, 40), (29, 1, 40), (30, 1, 40), (31, 1, 5), (32, 1, 40)) == [
        (0, "SlaBreachPredicted"),
        (30, "SlaBreachPredicted"),
        (32, "SlaBreachPredicted"),
    ]


def test_breached_once_and_recovered_once():
    assert follow((0, 31, 0), (1, 32, 0), (2, 0, 0), (3, 0, 0), (4, 31, 0)) == [
        (0, "SlaBreachPredicted"),
        (0, "SlaBreached"),
        (2, "SlaRecovered"),
        (4, "SlaBreachPredicted"),
        (4, "SlaBreached"),
    ]


def test_how_long_the_breach_lasted():
    state = PoolState(breached_at=NOW - 12)
    _, told = breach.watch(
        state, snapshot(), pool().profile, Outlook(arriving_seconds=0, oldest_seconds=None), NOW
    )
    assert told[0].fields["breached_seconds"] == 12


@pytest.mark.parametrize(
    ("budgets", "told"),
    [
        ([{}, {}], []),
        ([{"burn_rate_long": 2.5}] * 2, [(0, "slow")]),
        ([{"burn_rate_short": 7, "burn_rate_long": 2.5}, {"burn_rate_long": 2.5}], [(0, "fast")]),
        ([{"burn_rate_long": 2.5}, {"remaining_share": -0.1}], [(0, "slow"), (1, "spent")]),
        ([{"burn_rate_short": 7}, {}, {"burn_rate_short": 7}], [(0, "fast"), (2, "fast")]),
        ([{"remaining_share": 0.0}], []),
        ([{"burn_rate_short": 7}, None, {"burn_rate_short": 7}], [(0, "fast")]),
    ],
    ids=["quiet", "once", "not when it gets better", "when it gets worse", "again", "all", "gap"],
)
def test_a_budget_that_burns_is_told_when_it_begins_and_when_it_gets_worse(budgets, told):
    state, found = PoolState(), []
    for later, changes in enumerate(budgets):
        usual = {"sla_seconds": 30.0, "quantile": 0.95, "window_seconds": 86_400.0}
        seen = snapshot(budget=None if changes is None else Budget(**usual, **changes))
        calm = Outlook(arriving_seconds=0, oldest_seconds=None)
        state, notices = breach.watch(state, seen, pool().profile, calm, NOW + later)
        found += [(later, notice.fields["pace"]) for notice in notices]
    assert found == told
