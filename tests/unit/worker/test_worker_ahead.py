"""How many jobs a worker may claim ahead of the one it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.core.ahead import MOST, Ahead

BUDGET_SECONDS = 0.05


def seen(*run_seconds: float) -> Ahead:
    ahead = Ahead(BUDGET_SECONDS)
    for each in run_seconds:
        ahead.saw(each)
    return ahead


def test_nothing_is_known_at_first() -> None:
    assert seen().capacity(0) == 1
    assert seen().capacity(1) == 0


def test_tiny_jobs_are_claimed_many_at_a_time() -> None:
    assert seen(1e-6).capacity(0) == MOST
    assert seen(1e-6).capacity(100) == MOST
    assert seen(0.001).capacity(0) == 50
    assert seen(0.001).capacity(30) == 20
    assert seen(0.001).capacity(60) == 0


def test_messages_that_cannot_be_run_are_asked_for_ever_more_at_a_time() -> None:
    ahead, asked = seen(10), []
    for _ in range(6):
        asked.append(ahead.capacity(0))
        ahead.won(0, asked[-1])
    assert asked == [1, 1, 2, 4, 8, 16]
    assert ahead.capacity(1) == 0
    ahead.won(1, 32)
    assert ahead.capacity(0) == 1


def test_long_jobs_one_by_one() -> None:
    assert seen(10).capacity(0) == 1
    assert seen(10).capacity(1) == 0


def test_quicker_to_rise_than_to_fall() -> None:
    risen, fallen = seen(0.001, 0.1), seen(0.1, 0.001)
    assert (risen.expected_seconds or 0) - 0.001 > 0.1 - (fallen.expected_seconds or 0)


def test_after_a_long_job_short_ones_are_trusted_again() -> None:
    assert seen(10, *[0.0001] * 100).capacity(0) > 10


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(0, 2000))
def test_always_one_and_never_more_than_the_budget(runs: list[float], unfinished: int) -> None:
    ahead = seen(*runs)
    room = ahead.capacity(unfinished)
    assert (1 if unfinished == 0 else 0) <= room <= MOST
    if unfinished and room:
        assert (unfinished + room) * (ahead.expected_seconds or 0) <= BUDGET_SECONDS * (1 + 1e-9)
