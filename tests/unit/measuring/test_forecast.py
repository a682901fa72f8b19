"""Forecasts: calibrated on their own errors, chosen by their loss, off while they do not help."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.events.snapshot import Forecast
from penstock.measuring.calibration import SHARES, Calibration, loss, offsets
from penstock.measuring.forecast import Forecaster
from penstock.measuring.models import DAY_SECONDS, Holt, Seasonal, Stretch
from penstock.measuring.rates import RateWindow


class Pool:
    """Arrivals, seen every so often."""

    def __init__(self, horizon: float = 5.0) -> None:
        self.rates, self.forecaster, self.now = RateWindow(60), Forecaster(), 0.0
        self.forecaster.aim(horizon)

    def see(self, counts: Iterable[int], every: float = 1.0) -> Forecast | None:
        for count in counts:
            start, self.now = self.now, self.now + every
            self.rates.add(start, self.now, count)
            self.forecaster.add(start, self.now, count, self.rates)
        return self.forecaster.forecast(self.now)


def poisson(rate: float, seconds: int, seed: int = 0) -> list[int]:
    noise = random.Random(seed)
    return [sum(noise.random() < rate / 50 for _ in range(50)) for _ in range(seconds)]


def test_a_queue_that_nobody_used_has_no_forecast() -> None:
    assert Pool().see([0] * 500) is None


def test_at_first_it_is_the_level_and_says_why() -> None:
    found = Pool().see([3] * 20)
    assert (found.model, found.mean_per_second) == ("level", pytest.approx(3.0))
    assert found.off == "too few observations: 3 of 60 stretches"
    assert found.mean_per_second < found.p80_per_second < found.p95_per_second


def test_a_model_that_loses_less_is_used_and_says_by_how_much() -> None:
    pool = Pool(horizon=20.0)
    found = pool.see([round(20 + 20 * math.sin(i / 60)) for i in range(4000)])
    assert found.model != "level"
    assert found.off == ""
    assert found.relative_loss < 1.0


def test_where_nothing_helps_it_is_off_and_says_how_much_worse_it_would_be() -> None:
    noise = random.Random(3)
    jumps = [rate for _ in range(25) for rate in [noise.choice((0, 30))] * noise.randint(40, 160)]
    found = Pool().see(jumps)
    assert found.model == "level"
    assert found.off.startswith("the best, ")
    assert found.relative_loss > 0.95


@given(some.lists(some.integers(0, 50), min_size=310, max_size=400))
def test_what_is_used_never_lost_more_than_the_level(counts) -> None:
    pool = Pool()
    for start in range(0, len(counts), 30):
        found = pool.see(counts[start : start + 30])
        assert found is None or (found.model == "level") == bool(found.off)
        if found and found.model != "level":
            assert found.relative_loss <= 1.0


@given(some.lists(some.integers(0, 1000), min_size=30, max_size=80))
def test_quantiles_are_in_order_and_none_is_negative(counts) -> None:
    found = Pool().see(counts)
    if found:
        upper = [found.p80_per_second, found.p95_per_second, found.p99_per_second]
        assert upper == sorted(upper)
        assert min(found.mean_per_second, *upper) >= 0


def test_a_gap_is_no_drought() -> None:
    pool = Pool()
    pool.see(poisson(10, 400))
    pool.now += 300.0  # nothing was measured
    found = pool.see([10] * 5)
    assert found.mean_per_second == pytest.approx(10, rel=0.2)


def test_what_was_seen_from_afar_is_no_stretch() -> None:
    pool = Pool()
    before = pool.see(poisson(10, 400))
    after = pool.see([3000], every=300.0)
    assert after.mean_per_second == before.mean_per_second
    assert after.age_seconds == 300.0


def test_what_comes_by_the_clock_is_known_on_the_second_day() -> None:
    day = [1200 if minute % 60 == 30 else 0 for minute in range(1440)]
    found = Pool(horizon=40.0).see([*day, *day[:810]], every=60.0)  # the burst is next
    assert found.model == "daily"
    assert found.mean_per_second == pytest.approx(20, rel=0.1)


def test_a_new_horizon_begins_anew_and_a_similar_one_does_not() -> None:
    pool = Pool(horizon=5.0)
    pool.see(poisson(5, 400))
    pool.forecaster.aim(3.0)
    assert pool.see([5]).horizon_seconds == 5.0
    pool.forecaster.aim(17.0)
    assert pool.see([5]) is None
    assert pool.see([5] * 40).horizon_seconds == 20.0
    pool.forecaster.aim(6.0)
    assert pool.forecaster.horizon_seconds == 20.0
    pool.forecaster.aim(1.0)
    assert pool.forecaster.horizon_seconds == 5.0


def test_a_restart_begins_with_the_errors_of_before() -> None:
    before = Pool()
    bursts = before.see(([0] * 9 + [100]) * 100)
    after = Pool()
    after.forecaster.remember(bursts)
    fresh, again = Pool().see([10] * 5), after.see([10] * 5)
    assert again.p99_per_second > 1.5 * fresh.p99_per_second


class TestCalibration:
    @pytest.mark.parametrize("spread", [1, 6])
    def test_each_quantile_is_exceeded_as_often_as_it_says(self, spread: int) -> None:
        noise, found, hits = random.Random(1), Calibration(), [0, 0, 0]
        for _ in range(5000):
            came = spread * sum(noise.random() < 0.1 for _ in range(100 // spread)) / 5
            hits = [h + (came <= q) for h, q in zip(hits, found.quantiles(2.0, 5.0), strict=True)]
            found.learn(2.0, came, 5.0)
        assert [hit / 5000 for hit in hits] == pytest.approx(SHARES, abs=0.01)

    @given(some.floats(0, 1e4), some.sampled_from([0.25, 60.0, 1000.0]))
    def test_units_turned_round_give_the_same(self, mean, scale) -> None:
        found = [each * scale for each in Calibration().quantiles(mean / scale, 5.0 * scale)]
        assert found == pytest.approx(Calibration().quantiles(mean, 5.0))

    @given(some.lists(some.floats(0, 5), min_size=3, max_size=3), some.floats(0.1, 100))
    def test_offsets_are_where_the_quantiles_came_from(self, given_offsets, mean) -> None:
        given_offsets.sort()
        upper = Calibration(given_offsets).quantiles(mean, 5.0)
        assert offsets(mean, upper, 5.0) == pytest.approx(given_offsets)

    def test_the_right_quantile_loses_least(self) -> None:
        came = list(range(101))
        losses = {q: sum(loss([80.0, q, 99.0], y) for y in came) for q in (90.0, 95.0, 100.0)}
        assert min(losses, key=losses.__getitem__) == 95.0


class TestModels:
    def test_a_trend_goes_on_but_not_for_ever(self) -> None:
        model = Holt(0.5, 0.3, 0.9)
        said = [model.next(Stretch(float(n), float(n), n, n + 1)) for n in range(200)]
        assert said[-1] == pytest.approx(200, abs=5)
        assert Holt(0.5).next(Stretch(7.0, 7.0, 0.0, 1.0)) == 7.0

    def test_seasons_know_nothing_before_they_came_round(self) -> None:
        model = Seasonal(DAY_SECONDS, 24)
        hours = [(hour * 3600.0 + 1800, (hour + 1) * 3600.0 + 1800) for hour in range(72)]
        said = [
            model.next(Stretch(float(n % 24 == 3), 0.0, at, ahead))
            for n, (at, ahead) in enumerate(hours)
        ]
        assert said[:26] == [None] * 26  # what was before the first arrival is not kept
        assert [n for n, mean in enumerate(said) if mean] == [50]
