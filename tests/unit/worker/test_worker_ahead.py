"""How many jobs a worker may claim ahead of the one it runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.worker.core.ahead import MOST, Ahead

BUDGET_SECONDS = 0.05


class Seen(Ahead):
    """It ran jobs of one queue."""

    def __init__(self, *run_seconds: float) -> None:
        super().__init__(BUDGET_SECONDS)
        for seconds in run_seconds:
            self.saw("mails", seconds)

    @property
    def expected(self) -> float:
        return self.expected_seconds.get("mails", 0.0)

    def room(self, unfinished: int) -> int:
        return self.capacity("mails", unfinished)


def test_nothing_is_known_at_first() -> None:
    assert Seen().room(0) == 1
    assert Seen().room(1) == 0


def test_tiny_jobs_are_claimed_many_at_a_time() -> None:
    assert Seen(1e-6).room(0) == MOST
    assert Seen(1e-6).room(100) == MOST
    assert Seen(0.001).room(0) == 50
    assert Seen(0.001).room(30) == 20
    assert Seen(0.001).room(60) == 0


def test_messages_that_cannot_be_run_are_asked_for_ever_more_at_a_time() -> None:
    ahead, asked = Seen(10), []
    for _ in range(6):
        asked.append(ahead.room(0))
        ahead.won(0, asked[-1])
    assert asked == [1, 1, 2, 4, 8, 16]
    assert ahead.room(1) == 0
    ahead.won(1, 32)
    assert ahead.room(0) == 1


def test_long_jobs_one_by_one() -> None:
    assert Seen(10).room(0) == 1
    assert Seen(10).room(1) == 0


def test_short_jobs_of_one_queue_promise_nothing_for_another() -> None:
    ahead = Seen(0.001)
    assert [ahead.capacity("reports", unfinished) for unfinished in (0, 1)] == [1, 0]
    ahead.saw("reports", 10)
    assert [ahead.capacity("reports", unfinished) for unfinished in (0, 1)] == [1, 0]
    assert ahead.room(0) == 50


def test_of_any_number_of_queues_some_are_remembered() -> None:
    ahead = Seen()
    for number in range(5_000):
        ahead.saw(f"q{number}", 0.001)
    assert len(ahead.expected_seconds) <= 1_000
    assert ahead.capacity("q4999", 0) == 50


def test_quicker_to_rise_than_to_fall() -> None:
    risen, fallen = Seen(0.001, 0.1), Seen(0.1, 0.001)
    assert risen.expected - 0.001 > 0.1 - fallen.expected


def test_after_a_long_job_short_ones_are_trusted_again() -> None:
    assert Seen(10, *[0.0001] * 100).room(0) > 10


@given(st.lists(st.floats(0, 1e6), max_size=30), st.integers(0, 2000))
def test_always_one_and_never_more_than_the_budget(runs: list[float], unfinished: int) -> None:
    ahead = Seen(*runs)
    room = ahead.room(unfinished)
    assert (1 if unfinished == 0 else 0) <= room <= MOST
    if unfinished and room:
        assert (unfinished + room) * ahead.expected <= BUDGET_SECONDS * (1 + 1e-9)
