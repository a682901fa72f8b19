"""`hybrid` to the letter: the worked examples of the reference documents."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.decider.given import NOW, pool, snapshot, took

from penstock.decider.core.strategies.hybrid import Hybrid, average_job_seconds
from penstock.decider.core.strategy import StrategyInputs, whole


def wanted(profile=None, **measured) -> int:
    inputs = StrategyInputs(
        pool=pool(**(profile or {})),
        snapshot=snapshot(**measured),
        age_seconds=0.5,
        current=3,
        now=NOW,
    )
    demand = Hybrid().demand(inputs)
    assert demand.reasons[-1].workers == whole(demand.workers)
    return whole(demand.workers)


SPIKE = {"arrival_per_second": 50, "arrival_trend": "up", "forecast_per_second": 60, "waiting": 200}

GOLDEN = [
    ("steady: 10/s of 2 s", {}, {"arrival_per_second": 10}, 20),
    ("steady: 12/s of 2 s", {}, {"arrival_per_second": 12}, 24),
    ("steady: 5/s of 2 s", {}, {"arrival_per_second": 5}, 10),
    ("steady: 50/s of 2 s", {}, {"arrival_per_second": 50}, 100),
    ("steady: 60/s of 2 s", {}, {"arrival_per_second": 60}, 120),
    (
        "up without forecast: a fifth more",
        {},
        {"arrival_per_second": 10, "arrival_trend": "up"},
        24,
    ),
    (
        "up with forecast",
        {},
        {"arrival_per_second": 10, "arrival_trend": "up", "forecast_per_second": 15},
        30,
    ),
    (
        "up with a lower forecast: steady wins",
        {},
        {"arrival_per_second": 10, "arrival_trend": "up", "forecast_per_second": 5},
        20,
    ),
    (
        "down: steady wins over its four fifths",
        {},
        {"arrival_per_second": 15, "arrival_trend": "down"},
        30,
    ),
    ("forecast off", {"forecast": "off"}, {"arrival_per_second": 10, "arrival_trend": "up"}, 20),
    ("close to the breach", {}, {"waiting": 100, "oldest_waiting_seconds": 25}, 40),
    ("two seconds before it", {}, {"waiting": 200, "oldest_waiting_seconds": 28}, 200),
    ("after it", {}, {"waiting": 100, "oldest_waiting_seconds": 35}, 50),
    (
        "a burst, threshold 0",
        {"breach_threshold": 0},
        {"waiting": 200, "oldest_waiting_seconds": 15},
        27,
    ),
    (
        "the same burst below 0.8 of the promise",
        {},
        {"waiting": 200, "oldest_waiting_seconds": 15},
        0,
    ),
    ("the spike, early: predictive wins", {}, {**SPIKE, "oldest_waiting_seconds": 15}, 120),
    ("the spike, late: drain wins", {}, {**SPIKE, "oldest_waiting_seconds": 28}, 200),
    ("at the threshold", {}, {"waiting": 10, "oldest_waiting_seconds": 24}, 4),
    ("at the promise itself", {}, {"waiting": 10, "oldest_waiting_seconds": 30}, 5),
    (
        "jobs of no length",
        {},
        {"waiting": 3, "oldest_waiting_seconds": 40, "job_seconds": 0.001},
        30,
    ),
    ("nothing to do", {}, {}, 0),
]


@pytest.mark.parametrize(
    ("profile", "measured", "workers"), [g[1:] for g in GOLDEN], ids=[g[0] for g in GOLDEN]
)
def test_golden_cases(profile, measured, workers):
    assert wanted(profile, **measured) == workers


def test_the_morning_of_the_reference():
    day = [(5, "stable", None, 10), (8, "up", 9.6, 20), (12, "stable", None, 24)]
    for rate, trend, forecast, workers in day:
        assert (
            wanted(arrival_per_second=rate, arrival_trend=trend, forecast_per_second=forecast)
            == workers
        )


def test_a_breach_lifts_even_when_nobody_is_ready():
    assert wanted(waiting=100, oldest_waiting_seconds=35, job_seconds=None, workers_ready=0) == 100


@pytest.mark.parametrize(
    ("measured", "seconds"),
    [
        ({"job_seconds": 3.0, "workers_ready": 4, "throughput_per_second": 1.0}, 3.0),
        ({"job_seconds": None, "workers_ready": 4, "throughput_per_second": 2.0}, 2.0),
        ({"job_seconds": None, "workers_ready": 0, "throughput_per_second": 2.0}, 1.0),
        ({"job_seconds": None, "service": took(9, count=0)}, 1.0),
    ],
    ids=["measured first", "then the reference's circle", "then a second", "empty is not measured"],
)
def test_average_job_time(measured, seconds):
    assert average_job_seconds(snapshot(**measured))[0] == seconds


loads = st.fixed_dictionaries(
    {
        "waiting": st.integers(0, 500),
        "oldest_waiting_seconds": st.floats(0, 100),
        "arrival_per_second": st.floats(0, 100),
        "arrival_trend": st.sampled_from(["up", "down", "stable"]),
        "job_seconds": st.floats(0.001, 60),
    }
)


@given(loads, st.integers(0, 100), st.floats(0, 50))
def test_more_load_never_asks_for_fewer(load, more_waiting, more_per_second):
    heavier = {
        **load,
        "waiting": load["waiting"] + more_waiting,
        "arrival_per_second": load["arrival_per_second"] + more_per_second,
    }
    assert wanted(**heavier) >= wanted(**load)
