"""A queue between two looks."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.core.queue import Head, Look, Queue, arrived

QUIET = Look(at=0, waiting=0, claimed=0, delivered=0, delivered_sequence=0)


def look(**changes: float) -> Look:
    return msgspec.structs.replace(QUIET, **changes)


def seen(*looks: Look) -> Queue:
    queue = Queue("reports")
    for each in looks:
        queue.see(each)
    return queue


@pytest.mark.parametrize(
    ("before", "after", "came"),
    [
        pytest.param(look(), look(waiting=3), 3, id="they wait"),
        pytest.param(look(waiting=3), look(delivered=5), 2, id="two more came and all were taken"),
        pytest.param(look(), look(delivered=1, redelivered=1), 0, id="redelivered is not new"),
        pytest.param(
            look(delivered=2, redelivered=1), look(delivered=2), 0, id="a redelivered one was done"
        ),
        pytest.param(look(delivered=9), look(waiting=20), None, id="the consumer was made anew"),
        pytest.param(look(waiting=9), look(waiting=4), None, id="jobs were taken out unstarted"),
    ],
)
def test_arrivals(before: Look, after: Look, came: int | None) -> None:
    assert arrived(before, after) == came


counts = st.integers(0, 1000)
looks = st.builds(look, waiting=counts, delivered=counts, redelivered=counts)


@given(looks, looks)
def test_arrivals_are_never_negative(before: Look, after: Look) -> None:
    came = arrived(before, after)
    assert came is None or came >= 0


def test_what_was_never_looked_at_is_unknown_not_zero() -> None:
    assert Queue("reports").oldest_seconds(100) is None
    assert seen(look(waiting=1)).oldest_seconds(100) is None  # nobody asked for its head yet


def test_an_empty_queue_has_no_wait() -> None:
    assert seen(look()).oldest_seconds(100) == 0
    assert seen(look()).is_idle


def test_the_age_of_a_head_grows_by_itself() -> None:
    queue = seen(look(waiting=2, delivered_sequence=7))
    queue.head = Head(0, 7, stored_at=90)
    queue.see(look(at=5, waiting=3, delivered_sequence=7))
    assert (queue.oldest_seconds(100), queue.wants_head) == (10, False)


def test_a_head_that_moved_is_asked_for_again_and_carries_its_age() -> None:
    queue = seen(look(waiting=2, delivered_sequence=7))
    queue.head = Head(0, 7, stored_at=90)
    queue.see(look(at=5, waiting=1, delivered=1, delivered_sequence=8))
    assert queue.wants_head
    assert (queue.oldest_seconds(100), queue.head_age_seconds(6)) == (10, 6)


def test_a_head_that_was_taken_out_is_forgotten() -> None:
    queue = seen(look(waiting=2, delivered_sequence=7))
    queue.head = Head(0, 7, stored_at=90)
    queue.see(look(at=5, waiting=1, delivered_sequence=7))
    assert (queue.wants_head, queue.oldest_seconds(100)) == (True, None)


def test_jobs_that_were_all_picked_up_before_the_look_up_do_not_wait() -> None:
    queue = seen(look(waiting=2, delivered_sequence=7))
    queue.head = Head(1, 7, stored_at=None)
    assert queue.oldest_seconds(100) == 0
    queue.see(look(at=5, waiting=2, delivered_sequence=7))  # and yet two still wait
    assert queue.oldest_seconds(100) is None


def test_a_clock_behind_the_broker_gives_no_negative_age() -> None:
    queue = seen(look(waiting=2, delivered_sequence=7))
    queue.head = Head(0, 7, stored_at=101)
    assert queue.oldest_seconds(100) == 0
