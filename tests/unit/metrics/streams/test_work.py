"""What a query's batches say of its work, and how fast rows come."""

from __future__ import annotations

from itertools import accumulate, repeat

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.core.streams.history import History, TaskLength
from penstock.metrics.core.streams.work import Batch, Rate, Work, interval_of, rate_of, work_of

per_rows = st.floats(0.0001, 0.1)
fixed = st.floats(0.0, 3.0)
FOUR = (4.0,) * 20
row_counts = st.lists(st.integers(1, 5000), min_size=2, max_size=20)


def batches(rows, per_row, fixed_seconds, slots=FOUR, *, counted=True, every=10.0):
    """Batches that take exactly what the model says."""
    return [
        Batch(
            triggered_at=nth * every,
            rows=count,
            arrived_rows=count,
            seconds=fixed_seconds + per_row * count / by,
            overhead_seconds=fixed_seconds,
            slots=by,
            task_counter=per_row * total if counted else None,
        )
        for nth, (count, total, by) in enumerate(zip(rows, accumulate(rows), slots, strict=False))
    ]


@given(row_counts, per_rows, fixed, st.booleans(), st.lists(st.integers(1, 50), min_size=20))
def test_work_is_found_again_whatever_the_slots_were(rows, per_row, rest, counted, slots) -> None:
    work = work_of(batches(rows, per_row, rest, map(float, slots), counted=counted))
    assert work.task_seconds_per_row == pytest.approx(per_row)
    assert work.fixed_seconds == pytest.approx(rest, abs=1e-9)
    assert work.is_measured is counted


def test_idle_slots_count_as_work_only_where_spark_does_not_count_tasks() -> None:
    skewed = [
        Batch(
            triggered_at=10 * nth, rows=100, arrived_rows=100, seconds=6, overhead_seconds=1,
            slots=10, task_counter=5.0 * nth,
        )
        for nth in range(2)
    ]  # fmt: skip
    assert work_of(skewed) == Work(task_seconds_per_row=0.05, fixed_seconds=5.5, is_measured=True)
    [blind] = batches([100], 0.5, 1.0, [10.0], counted=False)
    assert work_of([blind]).task_seconds_per_row == 0.5


@given(st.lists(st.floats(0, 1), min_size=20, max_size=20))
def test_what_is_counted_too_early_is_missing_at_the_next_batch(early) -> None:
    exact = batches([100] * 20, 0.01, 0.5)
    seen = [
        msgspec.structs.replace(batch, task_counter=batch.task_counter + part)
        for batch, part in zip(exact, early, strict=True)
    ]
    assert work_of(seen).task_seconds_per_row == pytest.approx(0.01, rel=0.06)


def test_batches_whose_slots_changed_count_only_where_there_are_no_others() -> None:
    [changed] = batches([100], 0.09, 4.0, counted=False)
    changed = msgspec.structs.replace(changed, is_steady=False)
    assert work_of([changed]).fixed_seconds == pytest.approx(4.0)
    steady = batches([100] * 3, 0.01, 0.5, counted=False)
    assert work_of([*steady, changed]).fixed_seconds == pytest.approx(0.5)


def test_without_rows_or_slots_nothing_is_known() -> None:
    assert work_of([]) == work_of(batches([0, 0], 0.1, 1.0)) == Work()
    assert work_of(batches([5], 0.1, 1.0, [1e-12])).task_seconds_per_row is not None
    unslotted = Batch(triggered_at=0, rows=5, arrived_rows=5, seconds=9, slots=0)
    assert work_of([unslotted]) == Work()


def test_one_stray_among_many_batches_is_not_what_they_have_in_common() -> None:
    usual = batches([100] * 19, 0.01, 0.5, counted=False)
    stray = batches([100], 0.01, 9.0, counted=False)
    assert work_of([*stray, *usual]).fixed_seconds == pytest.approx(0.5)
    assert work_of([*stray * 3, *usual[:5]]).fixed_seconds == pytest.approx(9.0)


def came(*rows: float, every: float = 2.0) -> list[Batch]:
    return [
        Batch(triggered_at=at, rows=round(n), arrived_rows=n, seconds=1)
        for at, n in zip(accumulate(repeat(every)), rows, strict=False)
    ]


def test_a_step_is_known_at_once_and_is_no_trend() -> None:
    assert rate_of(came(2000, 2000, 2000, 6000)).rows_per_second == pytest.approx(3000, rel=0.03)
    assert rate_of(came(2000, 2000, 6000, 6000)).rows_per_second == pytest.approx(3000, rel=0.03)
    assert rate_of(came(2000, 2000, 6000, 6000)).growth_per_second == 0.0


def test_a_few_rows_more_are_chance() -> None:
    assert rate_of(came(1, 1, 1, 2)) == Rate(rows_per_second=4 / 6)
    assert rate_of(came(1, 2, 3, 4)) == Rate(rows_per_second=9 / 6)
    assert rate_of(came(1, 1, 1, 9)).rows_per_second == 2.0, "(3 - 1)^2 in 2 s"


def test_a_rate_that_grew_twice_grows() -> None:
    grown = rate_of(came(2000, 2000, 3000, 5000))
    assert grown.rows_per_second == pytest.approx(2500, rel=0.03)
    assert grown.growth_per_second == pytest.approx(250, rel=0.15)


def test_a_rate_falls_over_three_batches() -> None:
    assert rate_of(came(60, 60, 60, 20)).rows_per_second == pytest.approx(140 / 6)
    assert rate_of(came(60, 20, 20, 20)).rows_per_second == 10.0


def test_one_batch_has_no_rate() -> None:
    assert rate_of([]) == rate_of(came(20)) == Rate()


@given(st.lists(st.integers(0, 10_000), min_size=2, max_size=6), st.integers(0, 99))
def test_more_rows_in_the_latest_batch_never_lower_the_rate(rows, more) -> None:
    larger = [*rows[:-1], rows[-1] + more]
    assert rate_of(came(*larger)).rows_per_second >= rate_of(came(*rows)).rows_per_second
    assert rate_of(came(*larger)).growth_per_second >= rate_of(came(*rows)).growth_per_second


def test_the_interval_is_that_of_batches_that_waited_for_their_trigger() -> None:
    assert interval_of(batches([100] * 5, 0.01, 0.5, every=10.0)) == 10.0
    assert interval_of(batches([100] * 5, 0.01, 1.0, every=1.25)) == 0.0


def test_the_first_task_of_an_executor_does_not_stand_for_all() -> None:
    length = TaskLength()
    length.add(1, 40.0)
    assert length.seconds == 0.0  # too few looks
    for nth in range(1, 5):
        length.add(1 + 2 * nth, 40.0 + nth)
    assert length.seconds == 0.5
    length.add(9, 44.0)  # none ended
    length.add(2, 1.0)  # Spark forgot executors
    assert length.seconds == 0.5


def test_a_counter_is_known_between_two_samples() -> None:
    history = History()
    for at, value in ((0, 0.0), (1, 2.0), (2, 6.0), (3, 6.0)):
        history.add(at, value)
    assert history.after(0.5) == history.after(1) == 2.0
    assert history.after(-1) is history.after(4) is None
    assert history.values(0.5, 1.5) == [0.0, 2.0]
    assert history.values(-2, -1) == [0.0]
