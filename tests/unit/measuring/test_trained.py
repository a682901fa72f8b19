"""A trained forecast stands for election: used where it loses less, or not at all."""

from __future__ import annotations

import math

import pytest

from penstock.events.snapshot import Forecast
from penstock.measuring.forecast import Forecaster
from penstock.measuring.models import Stretch
from penstock.measuring.rates import RateWindow
from penstock.measuring.trained import Curve, Trained, TrainedChange

MINUTES, EVERY = 120, 10


def waves(shift: float = 0.0) -> list[float]:
    """Jobs a second, by the minute: up and down within 25 minutes."""
    return [20 + 18 * math.sin(minute / 4 + shift) for minute in range(MINUTES + 5)]


def seen(curve: Curve | None) -> Forecast:
    forecaster, rates = Forecaster(), RateWindow(60)
    forecaster.aim(80.0)
    forecaster.trust(curve)
    for second in range(0, MINUTES * 60, EVERY):
        count = round(EVERY * waves()[second // 60])
        rates.add(second, second + EVERY, count)
        forecaster.add(second, second + EVERY, count, rates)
    found = forecaster.forecast(MINUTES * 60)
    assert found is not None
    return found


def test_a_curve_that_is_right_is_used_and_says_by_how_much() -> None:
    found = seen(Curve(0.0, 60.0, waves()))
    assert found.model.startswith("trained")
    assert found.relative_loss is not None
    assert found.relative_loss < 0.5


def test_a_curve_that_is_wrong_is_not_used() -> None:
    assert not seen(Curve(0.0, 60.0, waves(math.pi))).model.startswith("trained")


def test_a_curve_that_is_over_gives_way_to_the_level_or_a_simple_model() -> None:
    found = seen(Curve(0.0, 60.0, waves()[: MINUTES - 10]))
    assert not found.model.startswith("trained")
    assert found.mean_per_second > 0


def test_it_may_come_and_go_at_any_time() -> None:
    forecaster = Forecaster()
    for curve in (None, Curve(0.0, 60.0, [1.0]), Curve(0.0, 60.0, [2.0]), None):
        forecaster.trust(curve)
    forecaster.aim(100.0)  # begins anew
    assert forecaster.forecast(0.0) is None


def test_before_and_after_its_steps_it_knows_nothing() -> None:
    curve = Curve(100.0, 10.0, [1.0, 2.0])
    assert [curve.at(time) for time in (99.9, 100.0, 119.9, 120.0)] == [None, 1.0, 2.0, None]


def test_the_level_is_changed_as_the_curve_changes() -> None:
    trained = Trained()
    change = TrainedChange(trained)
    now = Stretch(per_second=9.0, level=9.0, at=5.0, ahead=15.0)
    assert (trained.next(now), change.next(now)) == (None, None)
    trained.curve = Curve(0.0, 10.0, [2.0, 5.0])
    assert (trained.next(now), change.next(now)) == (5.0, 12.0)
    assert change.next(now._replace(ahead=25.0)) is None
    assert change.next(Stretch(0.0, 0.0, 15.0, 5.0)) == pytest.approx(0.0)  # never below nothing
