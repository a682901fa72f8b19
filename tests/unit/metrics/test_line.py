"""Ages along the line of waiting jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.events.snapshot import WaitingJob
from penstock.metrics.core.line import Line, Spot, evenly, evenly_chosen, sequences

NOW = 1_000_000.0


def line(*spots: tuple[int, float, int]) -> Line:
    """Spots as (sequence, age, jobs behind)."""
    found = Line()
    found.spots = tuple(Spot(sequence, NOW - age, behind) for sequence, age, behind in spots)
    return found


def ages(found: Line, waiting: int, oldest: float | None) -> tuple[float, ...]:
    return evenly([(waiting, found.ages(waiting, oldest, NOW))])


def test_ages_between_two_that_are_known_change_evenly() -> None:
    found = line((50, 40.0, 50), (101, 0.0, 0))
    assert ages(found, 101, 80.0) == pytest.approx((80, 60, 40, 20, 0))


def test_of_a_short_line_each_job_has_a_place() -> None:
    assert ages(line((3, 5.0, 1), (4, 4.0, 0)), 3, 9.0) == pytest.approx((9, 5, 4))
    assert ages(line(), 1, 9.0) == (9.0,)


@pytest.mark.parametrize(("waiting", "oldest"), [(2, 9.0), (1, None), (0, 0.0)])
def test_what_is_not_known_is_empty(waiting: int, oldest: float | None) -> None:
    assert ages(line(), waiting, oldest) == ()


def test_those_who_came_since_are_no_older_than_the_look_up() -> None:
    found = line((9, 50.0, 0))
    found.look_up(7.0, NOW - 3.0)
    found.see(waiting=20, delivered_sequence=0, arrived=10)
    assert ages(found, 20, 90.0)[3:] == pytest.approx((3, 3))


def test_who_has_left_is_forgotten_and_who_came_stands_behind() -> None:
    found = line((10, 40.0, 90), (50, 20.0, 50), (100, 1.0, 0))
    found.see(waiting=90, delivered_sequence=20, arrived=10)
    assert [(spot.sequence, spot.behind) for spot in found.spots] == [(50, 60), (100, 10)]
    found.see(waiting=5, delivered_sequence=20, arrived=0)  # most were taken out unstarted
    assert found.spots == ()


def test_of_many_jobs_the_oldest_the_newest_and_some_between_are_named() -> None:
    jobs = [WaitingJob(f"j{age}", float(age)) for age in range(100)]
    assert [job.id for job in evenly_chosen(jobs)] == ["j99", "j75", "j50", "j25", "j0"]
    assert [job.id for job in evenly_chosen(jobs[:2])] == ["j1", "j0"]


def test_arrivals_that_nobody_counted_make_the_places_unknown() -> None:
    found = line((10, 40.0, 9))
    found.see(waiting=20, delivered_sequence=0, arrived=None)
    assert ages(found, 20, 50.0) == ()


def test_queues_of_a_group_stand_in_one_line_by_age() -> None:
    old = line((9, 90.0, 0)).ages(100, 100.0, NOW)
    young = line((9, 0.0, 0)).ages(300, 10.0, NOW)
    merged = evenly([(100, old), (300, young)])
    assert merged[0] == 100.0
    assert merged[1] == pytest.approx(90, abs=1)  # the old are the first quarter
    assert merged[4] == pytest.approx(0, abs=1)


def test_one_queue_unknown_makes_the_groups_line_unknown() -> None:
    assert evenly([(1, ((0, 5.0),)), (7, ())]) == ()
    assert evenly([(1, ((0, 5.0),)), (0, ())]) == (5.0,)


@given(some.integers(0, 10**6), some.integers(1, 10**6))
def test_one_looks_between_the_first_and_the_last(delivered, more) -> None:
    found = sequences(delivered, delivered + more)
    assert found == sorted(found)
    assert all(delivered < sequence <= delivered + more for sequence in found)


@given(
    some.lists(
        some.tuples(some.integers(1, 500), some.floats(0, 100), some.floats(0, 100)), max_size=4
    )
)
def test_ages_fall_along_the_line_and_lie_between_the_oldest_and_the_youngest(queues) -> None:
    lines = [
        (waiting, line((1, min(a, b), 0)).ages(waiting, max(a, b), NOW)) for waiting, a, b in queues
    ]
    found = evenly(lines)
    assert list(found) == sorted(found, reverse=True)
    assert len(found) == min(5, sum(waiting for waiting, _, _ in queues))
    if found:
        assert found[0] == pytest.approx(max(max(a, b) for _, a, b in queues))
