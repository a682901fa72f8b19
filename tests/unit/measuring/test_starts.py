"""How long workers take to start, alone and together."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.measuring.starts import Starts

A_FEW = some.lists(some.tuples(some.floats(0.001, 100), some.integers(1, 50)), min_size=1)


def of(*starts: tuple[float, int]) -> Starts:
    found = Starts()
    for number, (seconds, together) in enumerate(starts):
        found.add(seconds, together, float(number))
    return found


def test_before_the_first_nothing_is_known() -> None:
    assert (Starts().quantiles(0.0), Starts().fit()) == (None, None)


def test_each_further_one_costs_what_it_was_seen_to_cost() -> None:
    noise = random.Random(1)
    starts = [
        (0.5 + 0.1 * (k - 1) + noise.gauss(0, 0.02), k) for k in (1, 2, 4, 8) for _ in range(20)
    ]
    fit = of(*starts).fit()
    assert fit.contention_seconds == pytest.approx(0.1, rel=0.05)
    assert fit.mean_seconds == pytest.approx(0.5, rel=0.05)
    assert 0.52 < fit.p95_seconds <= fit.p99_seconds < 0.6
    assert fit.most_together == 8


def test_noise_is_no_contention() -> None:
    noise = random.Random(2)
    fit = of(*((noise.uniform(0.4, 0.6), noise.randint(1, 4)) for _ in range(100))).fit()
    assert fit.contention_seconds == 0.0


@given(A_FEW, some.floats(0.001, 800))
def test_units_turned_round_give_the_same_line(starts, scale) -> None:
    one = of(*starts).fit()
    other = of(*((seconds * scale, together) for seconds, together in starts)).fit()
    assert other.mean_seconds == pytest.approx(one.mean_seconds * scale, rel=1e-6)
    assert other.contention_seconds == pytest.approx(
        one.contention_seconds * scale, rel=1e-6, abs=1e-9 * scale
    )


@given(A_FEW)
def test_no_quantile_is_negative_and_more_together_never_start_sooner(starts) -> None:
    found = of(*starts)
    fit = found.fit()
    assert 0 <= fit.p95_seconds <= fit.p99_seconds
    assert fit.contention_seconds >= 0
    assert found.quantiles(1000.0).count == len(starts)


def test_old_starts_go_when_new_ones_come_and_not_before() -> None:
    found = of((9.0, 1))
    assert found.quantiles(1e6).mean_seconds == 9.0
    assert found.quantiles(1e6).age_seconds == 1e6
    found.add(1.0, 1, 2e6)
    assert found.quantiles(2e6).mean_seconds == 1.0


def test_memory_is_bounded() -> None:
    assert of(*((1.0, 1) for _ in range(1000))).quantiles(1000.0).count == 256


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf])
def test_what_is_no_duration_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match="expected seconds"):
        Starts().add(seconds, 1, 0.0)


def test_own_starts_replace_what_was_remembered() -> None:
    before = of((9.0, 5))
    after = Starts()
    after.remember(before.quantiles(1.0), before.fit(), -50.0)
    assert (after.quantiles(0.0).mean_seconds, after.quantiles(0.0).age_seconds) == (9.0, 50.0)
    after.add(1.0, 1, 1.0)
    assert (after.quantiles(1.0).count, after.fit().most_together) == (1, 1)
