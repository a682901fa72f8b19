"""Arrival rates: change is told apart from noise, gaps from zeros, batches from rates."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.measuring import rates
from penstock.measuring.rates import RateWindow


def window(*per_second: int, start: float = 0.0) -> RateWindow:
    """A window of 60 s that saw these counts, one a second."""
    found = RateWindow(60)
    for second, count in enumerate(per_second):
        found.add(start + second, start + second + 1, count)
    return found


def poisson(rate: float, seconds: int, seed: int) -> list[int]:
    source = random.Random(seed)
    counts = [0] * seconds
    at = source.expovariate(rate)
    while at < seconds:
        counts[int(at)] += 1
        at += source.expovariate(rate)
    return counts


def test_nothing_is_known_before_something_was_observed() -> None:
    assert RateWindow(60).rate(5) is None
    assert RateWindow(60).mean_per_second() is None


def test_a_quiet_queue_has_a_rate_of_zero_and_costs_one_interval() -> None:
    quiet = window(*[0] * 300)
    rate = quiet.rate(5)
    assert rate and (rate.per_second, rate.trend, rate.forecast_per_second) == (0, "stable", None)
    assert len(quiet._intervals) == 1


def test_calm_traffic_is_measured_over_the_whole_window() -> None:
    rate = window(*[10] * 90).rate(5)
    assert rate and rate.per_second == pytest.approx(10)
    assert rate.window_seconds == pytest.approx(60)


def test_a_step_up_is_seen_in_seconds_and_then_called_stable() -> None:
    after_4 = window(*[0] * 60, *[10] * 4).rate(5)
    assert after_4 and after_4.per_second == pytest.approx(10)
    assert (after_4.trend, window(*[0] * 60, *[10] * 40).rate(5).trend) == ("up", "stable")


def test_a_step_down_is_seen_in_seconds() -> None:
    seen = window(*[10] * 60)
    before = seen.rate(5)
    assert before and before.per_second == pytest.approx(10)
    for second in range(60, 64):
        seen.add(second, second + 1, 0)
    rate = seen.rate(5)
    assert rate and rate.per_second == 0
    assert rate.trend == "down"


def test_a_batch_dispatched_at_once_is_no_rate() -> None:
    rate = window(*[0] * 60, 200, 0, 0).rate(5)
    assert rate and rate.per_second == pytest.approx(200 / 60)
    assert rate.trend == "stable"


def test_a_ramp_is_forecast_above_its_present_rate_and_within_bounds() -> None:
    rate = window(*range(60)).rate(10)
    assert rate and rate.trend == "up"
    assert rate.forecast_per_second is not None
    assert 60 < rate.forecast_per_second < 75  # 10 s ahead of 59 a second, growing by 1 a second


def test_poisson_noise_is_rarely_called_a_trend() -> None:
    trends = [window(*poisson(5, 90, seed)).rate(5).trend for seed in range(200)]
    assert trends.count("stable") >= 196


def test_a_gap_is_not_counted_as_quiet() -> None:
    seen = RateWindow(60)
    seen.add(0, 10, 100)
    seen.add(40, 50, 100)
    assert seen.mean_per_second() == pytest.approx(10)


@given(st.lists(st.tuples(st.floats(0.05, 3), st.integers(0, 50)), min_size=1, max_size=200))
def test_the_mean_is_what_was_counted_over_what_was_observed(
    intervals: list[tuple[float, int]],
) -> None:
    seen, ends = RateWindow(1000), [0.0]
    for seconds, count in intervals:
        ends.append(ends[-1] + seconds)
        seen.add(ends[-2], ends[-1], count)
    mean = seen.mean_per_second()
    assert mean == pytest.approx(sum(count for _, count in intervals) / ends[-1])
    assert all(a[1] <= b[0] for a, b in pairwise(seen._intervals))


@given(st.integers(1, 1000), st.floats(0.1, 10))
def test_units_turn_round(count: int, scale: float) -> None:
    """The same counts in twice the time are half the rate."""
    one, other = RateWindow(60), RateWindow(60 * scale)
    for second in range(60):
        one.add(second, second + 1, count)
        other.add(second * scale, (second + 1) * scale, count)
    assert other.rate(5).per_second * scale == pytest.approx(one.rate(5).per_second, rel=1e-6)


class Plain(RateWindow):
    """Takes the logarithms of every cut, and calculates every slope."""

    def _suspects(self, parts, first, length):
        whole = parts.seconds[length - 1]
        for index in range(first, length - 1):
            if whole - parts.seconds[index] >= self._bucket_seconds / 2:
                yield index

    def _may_slope(self, length, parts, change):
        return True


@pytest.mark.parametrize("seed", range(40))
def test_what_a_bound_rules_out_changes_no_rate(seed) -> None:
    """Bit for bit the same, also in ramps, bursts, batches and gaps."""
    chance = random.Random(seed)
    bucket, rate = chance.choice([0.0, 1.0, 5.0]), chance.choice([0.02, 0.5, 3.0, 40.0])
    quick, plain = RateWindow(60, bucket), Plain(60, bucket)
    ramp = chance.choice([1.0, 1.0, 1.003])
    now, trends = chance.uniform(0, 1e7), set()
    for _ in range(300):
        rate *= chance.choice([0.2, 4.0]) if chance.random() < 0.01 else ramp
        seconds = chance.choice([1.0, 0.2, chance.uniform(0.01, 2.0)])
        count = sum(chance.random() < rate * seconds / 50 for _ in range(50))
        count += 500 * (chance.random() < 0.005)
        now += chance.uniform(0, 3) * (chance.random() < 0.02)
        for window in (quick, plain):
            window.add(now, now + seconds, count)
        now += seconds
        assert quick.rate(3.0) == plain.rate(3.0)
        trends.add(quick.rate(3.0).trend)
    assert "stable" in trends


def test_nearly_no_cut_of_a_steady_rate_takes_logarithms() -> None:
    steady = window(*poisson(3.0, 60, seed=1))
    parts = rates._Parts(steady._intervals)
    suspects = list(steady._suspects(parts, 3, len(parts.seconds)))
    assert len(suspects) <= 3
    assert not steady._may_slope(len(parts.seconds), parts, 0.0)
