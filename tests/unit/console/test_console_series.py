"""Measurements over time: each resolution keeps the largest value, and what is old is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.console.core.series import COLUMNS, HOUR_SECONDS, TIERS, Series, oldest_kept

NOON = 1_795_434_400.0
WAITING = COLUMNS["pool"].index("waiting")


def pool_values(waiting: float | None) -> list[float | None]:
    return [waiting if column == "waiting" else None for column in COLUMNS["pool"]]


@given(st.lists(st.tuples(st.integers(0, 800), st.integers(0, 1_000)), min_size=1, max_size=60))
def test_each_second_shows_the_largest_of_its_values(measured: list[tuple[int, int]]) -> None:
    series = Series()
    largest: dict[int, int] = {}
    for second, waiting in measured:
        series.add("pool", "reports", NOON + second, pool_values(waiting))
        largest[int(NOON) + second] = max(waiting, largest.get(int(NOON) + second, 0))
    points = series.points("pool", "reports", NOON, NOON + 850)
    assert dict(zip(points.at, points.values["waiting"], strict=True)) == largest
    assert points.step_seconds == 1
    assert set(points.values["ready"]) == {None}


def test_a_longer_stretch_is_shown_in_coarser_points_without_losing_its_peak() -> None:
    series = Series()
    for second in range(120):
        series.add("pool", "reports", NOON + second, pool_values(90 if second == 33 else 1))
    for length, step in ((6 * HOUR_SECONDS, 10), (86_400, 60)):
        points = series.points("pool", "reports", NOON + 120 - length, NOON + 120)
        assert points.step_seconds == step
        assert max(value or 0 for value in points.values["waiting"]) == 90


def test_what_was_stored_is_there_after_a_restart() -> None:
    series, restarted = Series(), Series()
    series.add("pool", "reports", NOON, pool_values(7))
    series.add("host", "h1", NOON, (1.5, None, 3, 3))
    stored = series.take_changed()
    assert series.take_changed() == []
    restarted.restore([*stored, (stored[0][0]._replace(name="torn"), b"short")])
    assert restarted.points("pool", "reports", NOON - 60, NOON).values["waiting"] == [7]
    assert restarted.points("host", "h1", NOON - 60, NOON).values["busy_cores"] == [1.5]
    assert restarted.points("pool", "torn", NOON - 60, NOON).at == []


def test_each_resolution_is_kept_for_its_time() -> None:
    kept = dict(oldest_kept(NOON))
    for step, seconds in TIERS:
        assert NOON - seconds < (kept[step] + 1) * HOUR_SECONDS
        assert (kept[step]) * HOUR_SECONDS <= NOON - seconds


def test_what_is_stored_leaves_the_memory_and_is_shown_from_what_was_stored() -> None:
    series = Series()
    series.add("pool", "reports", NOON, pool_values(7))
    series.add("pool", "reports", NOON + 3 * HOUR_SECONDS, pool_values(9))
    series.let_go(NOON + 3 * HOUR_SECONDS)
    stretch = ("pool", "reports", NOON - 60, NOON + 3 * HOUR_SECONDS)
    assert series.points(*stretch).values["waiting"] == [7, 9]  # not stored yet
    stored = series.take_changed()
    series.let_go(NOON + 3 * HOUR_SECONDS)
    assert series.points(*stretch).values["waiting"] == [9]
    assert series.points(*stretch, stored).values["waiting"] == [7, 9]


def test_a_flood_of_names_takes_no_more_memory() -> None:
    series = Series()
    for number in range(1_200):
        series.add("queue", f"q{number}", NOON, (1.0, 0.0))
    assert series.points("queue", "q999", NOON - 60, NOON).at
    assert not series.points("queue", "q1000", NOON - 60, NOON).at
    series.take_changed()
    series.let_go(NOON + 30 * 86_400)
    series.add("queue", "q1000", NOON, (1.0, 0.0))
    assert series.points("queue", "q1000", NOON - 60, NOON).at
