"""Forecasts by the clock: the model that lost least, with quantiles that hold, or a reason."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.pipeline.core.days import days
from penstock.pipeline.core.forecast import Plan, make_forecast
from penstock.pipeline.core.seasons import MODELS, Floats

HOURLY = Plan(step_seconds=3600, horizon_steps=24)
MONDAY = 1_767_571_200.0  # 2026-01-05


def poisson(usual: Floats, weeks: int = 4, seed: int = 1) -> Floats:
    return np.random.default_rng(seed).poisson(np.tile(usual, weeks)).astype(float)


def by_day() -> Floats:
    return np.tile(60 + 50 * np.sin(np.arange(24) / 24 * 2 * np.pi), 7)


def test_what_it_says_is_better_than_yesterday_and_covers_as_often_as_it_says() -> None:
    made = make_forecast(poisson(by_day()), MONDAY, HOURLY)
    assert made is not None
    assert (made.off, made.origins) == ("", 7)
    assert made.relative_loss is not None
    assert made.relative_loss < 0.9
    assert made.mean == pytest.approx(by_day()[:24], rel=0.25, abs=5)
    assert made.coverage["0.80"] == pytest.approx(0.8, abs=0.1)
    assert (np.diff(made.upper, axis=0) >= 0).all()


def test_weekends_are_known() -> None:
    week = by_day()
    week[5 * 24 :] /= 10
    made = make_forecast(poisson(week)[: -2 * 24], MONDAY, HOURLY)  # Saturday is next
    assert made is not None
    assert made.mean.sum() == pytest.approx(week[-24:].sum(), rel=0.3)


def test_a_special_day_is_like_a_sunday() -> None:
    week = by_day()
    week[6 * 24 :] = 1.0
    plan = Plan(step_seconds=3600, horizon_steps=24, special_days=("2026-02-02",))
    made = make_forecast(poisson(week), MONDAY, plan)  # that Monday is next
    assert made is not None
    assert made.mean.sum() < 0.5 * week[:24].sum()


def test_the_clock_is_that_of_the_zone() -> None:
    spring = 1_774_656_000.0  # 2026-03-28, the day before clocks go forward in Berlin
    found = days(spring, 3600, 48, "Europe/Berlin")
    assert found.of_day[0] == 1
    assert (found.of_day == 2).sum() == 1  # 02:00 is missing on the 29th
    assert (found.of_week // 24)[[0, 30]].tolist() == [5, 6]


@pytest.mark.parametrize(("known_days", "why"), [(2, "2 of 5 days"), (4, "4 of 5 days")])
def test_with_little_known_it_says_so(known_days: int, why: str) -> None:
    made = make_forecast(poisson(by_day())[: known_days * 24], MONDAY, HOURLY)
    assert made is not None
    assert made.relative_loss is None
    assert why in made.off


def test_with_less_than_two_days_it_says_nothing() -> None:
    assert make_forecast(poisson(by_day())[:47], MONDAY, HOURLY) is None


def test_where_nothing_can_be_better_it_is_off() -> None:
    made = make_forecast(np.ones(24 * 28), MONDAY, HOURLY)
    assert made is not None
    assert made.off or made.relative_loss is None or made.relative_loss <= 1.0


@pytest.mark.parametrize("name", MODELS)
def test_each_model_is_right_where_each_day_is_the_same(name: str) -> None:
    counts = np.tile(by_day(), 3)
    when = days(MONDAY, 3600, len(counts) + 24)
    split = when.between(0, len(counts)), when.between(len(counts), len(counts) + 24)
    assert MODELS[name](counts, *split) == pytest.approx(by_day()[:24], rel=0.05, abs=2)


def test_a_pool_where_nothing_ever_came_is_forecast_at_nothing() -> None:
    made = make_forecast(np.zeros(24 * 14), MONDAY, HOURLY)
    assert made is not None
    assert made.mean.max() == pytest.approx(0.0, abs=1e-6)
