"""Distributions that age, survive rubbish, and count running jobs."""

from __future__ import annotations

import pytest
from datasketches import kll_doubles_sketch
from hypothesis import given
from hypothesis import strategies as st

from penstock.events.snapshot import Quantiles
from penstock.metrics.core.sketches import BadSketch, Distribution


def sketch(*values: float) -> tuple[bytes, float, float]:
    made = kll_doubles_sketch(200)
    for value in values:
        made.update(value)
    return made.serialize(), sum(values), sum(value * value for value in values)


def of(*values: float, now: float = 0.0, **options: int) -> Distribution:
    found = Distribution(60, **options)
    if values:
        found.merge(*sketch(*values), now)
    return found


def test_before_the_first_sample_there_is_nothing() -> None:
    assert of().quantiles(0) is None


def test_reports_of_several_workers_are_one_distribution() -> None:
    both = of(1.0, 2.0)
    both.merge(*sketch(3.0, 10.0), 1.0)
    found = both.quantiles(1.0)
    assert found and (found.count, found.mean_seconds) == (4, 4.0)
    assert (found.p50_seconds, found.p99_seconds) == (3.0, 10.0)


def test_samples_age_out() -> None:
    found = of(1.0)
    found.merge(*sketch(5.0), 40.0)
    assert found.quantiles(65).count == 2
    assert found.quantiles(71).mean_seconds == 5.0
    assert found.quantiles(200) is None


def test_how_long_jobs_take_stays_known_when_none_runs() -> None:
    found = of(1.0, keeps=2)
    assert found.quantiles(1).mean_seconds == 1.0
    assert found.quantiles(1000).mean_seconds == 1.0
    found.merge(*sketch(7.0), 1001)
    assert found.quantiles(1001).mean_seconds == 4.0, "one sample is not taken for all"
    found.merge(*sketch(7.0, 7.0), 1100)
    assert found.quantiles(1200).mean_seconds == 7.0


def test_what_an_earlier_process_knew_stands_until_the_first_own_sample() -> None:
    earlier = Quantiles(count=9, mean_seconds=3, p50_seconds=3, p95_seconds=3, p99_seconds=3)
    found = of(keeps=2)
    found.remember(earlier)
    assert found.quantiles(0) == earlier
    found.add(1.0, 1)
    assert found.quantiles(1).count == 1


@pytest.mark.parametrize("raw", [b"", b"x", b"\x05\x01\x0f\x00" + b"\xff" * 40, b"\0" * 64])
def test_rubbish_is_refused_and_changes_nothing(raw: bytes) -> None:
    found = of(1.0)
    with pytest.raises(BadSketch, match="expected a serialized KLL sketch"):
        found.merge(raw, 1.0, 1.0, 0.0)
    assert found.quantiles(0).count == 1


@given(st.binary(max_size=200))
def test_no_bytes_can_break_it(raw: bytes) -> None:
    found = of(1.0)
    try:
        found.merge(raw, 1.0, 1.0, 0.0)
    except BadSketch:
        assert found.quantiles(0).count == 1


@pytest.mark.parametrize("total", [-1.0, float("nan"), float("inf")])
def test_sums_that_are_no_durations_are_refused(total: float) -> None:
    with pytest.raises(BadSketch):
        of().merge(sketch(1.0)[0], total, 1.0, 0.0)
    with pytest.raises(BadSketch):
        of().merge(*sketch(-5.0, 1.0), 0.0)


def test_variation_is_measured() -> None:
    assert of(2.0, 2.0, 2.0).quantiles(0).cv2 == pytest.approx(0)
    assert of(0.0, 4.0).quantiles(0).cv2 == pytest.approx(1)
    assert of(0.0, 2e-311).quantiles(0).cv2 == 1.0
    without_squares = of()
    without_squares.merge(sketch(1.0, 9.0)[0], 10.0, 0.0, 0.0)
    assert without_squares.quantiles(0).cv2 == 1.0


@pytest.mark.parametrize(
    ("values", "total", "squares"),
    [((1.0,), 1e300, 0.0), ((1.0,), 1.0, 1e300), ((1e12,), 1e12, 1e24)],
)
def test_sums_that_do_not_belong_to_the_samples_are_refused(
    values: tuple[float, ...], total: float, squares: float
) -> None:
    made = kll_doubles_sketch(200)
    for value in values:
        made.update(value)
    with pytest.raises(BadSketch, match="expected"):
        Distribution(60.0).merge(made.serialize(), total, squares, 0.0)
