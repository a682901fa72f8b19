"""Queues that a pattern names, summed: counters that only grow, and what is unknown."""

from __future__ import annotations

from typing import Any

from penstock.metrics.core.sources.look import SourceFault, SourceLook
from penstock.metrics.core.sources.pattern import PatternSum

GONE = SourceFault("no such queue")


def look(waiting: int, **figures: Any) -> SourceLook:
    return SourceLook(waiting=waiting, **figures)


def summed(one: PatternSum, now: float, **looks: SourceLook | SourceFault) -> SourceLook:
    found = one.sum(looks, now).look
    assert found is not None
    return found


def test_before_the_names_are_read_there_is_no_look() -> None:
    assert PatternSum("a*").sum({}, 0.0).look is None


def test_no_queue_is_nothing_that_waits() -> None:
    one = PatternSum("a*")
    one.set_names([], 0.0)
    found = summed(one, 1.0)
    assert (found.waiting, found.claimed, found.behind_seconds, found.exact) == (0, 0, 0.0, True)


def test_figures_are_sums_and_the_age_is_the_largest() -> None:
    one = PatternSum("a*")
    one.set_names(["a1", "a2", "a3"], 0.0)
    found = summed(
        one, 1.0,
        a1=look(3, claimed=1, delayed=2, oldest_seconds=5.0),
        a2=look(4, claimed=2, delayed=0, oldest_seconds=9.0),
        a3=look(0, claimed=0, delayed=0, oldest_seconds=0.0),
    )  # fmt: skip
    assert (found.waiting, found.claimed, found.delayed, found.oldest_seconds) == (7, 3, 2, 9.0)
    assert (found.arrived, found.ended) == (None, None)


def test_one_unknown_figure_makes_the_sum_unknown() -> None:
    one = PatternSum("a*")
    one.set_names(["a1", "a2"], 0.0)
    found = summed(one, 1.0, a1=look(3, claimed=1, oldest_seconds=5.0), a2=look(4, exact=False))
    assert (found.claimed, found.oldest_seconds, found.exact) == (None, None, False)
    assert not found.misses_ends
    assert summed(one, 2.0, a1=look(3, ended=1, misses_ends=True), a2=look(4, ended=2)).misses_ends


def test_counters_survive_queues_that_come_go_and_count_anew() -> None:
    one = PatternSum("a*")
    one.set_names(["a1", "a2"], 0.0)
    first = summed(one, 1.0, a1=look(0, arrived=100, ended=90), a2=look(0, arrived=7, ended=7))
    assert (first.arrived, first.ended) == (0, 0)
    # a1 goes on, a2 begins anew, a3 is new
    one.set_names(["a1", "a2", "a3"], 2.0)
    again = summed(
        one, 2.0,
        a1=look(5, arrived=110, ended=95), a2=look(0, arrived=1, ended=1, epoch="2"),
        a3=look(4, claimed=1, arrived=30, ended=25),
    )  # fmt: skip
    assert (again.arrived, again.ended) == (15, 5)
    one.set_names(["a3"], 3.0)
    last = summed(one, 3.0, a3=look(4, claimed=2, arrived=31, ended=25))
    assert (last.waiting, last.arrived, last.ended) == (4, 16, 5)


def test_a_queue_that_cannot_be_looked_at_stands_as_it_was_and_ages_the_sum() -> None:
    one = PatternSum("a*")
    one.set_names(["a1", "a2"], 0.0)
    summed(one, 1.0, a1=look(3), a2=look(4))
    looks = {"a1": look(5), "a2": SourceFault("wrong type")}
    assert one.unlisted_faults(looks)
    # it may be gone: nothing is said before the names were read again
    assert one.sum(looks, 2.0).fault == ""
    one.confirm_faults(looks)
    assert not one.unlisted_faults(looks)
    found, fault = one.sum(looks, 4.0)
    assert found is not None
    assert (found.waiting, found.behind_seconds) == (9, 3.0)
    assert fault == "1 of 2 queues, e.g. 'a2': wrong type"
    # and is a new fault after it was seen again
    assert one.sum({"a1": look(5), "a2": look(1)}, 5.0).fault == ""
    assert one.unlisted_faults(looks)


def test_a_queue_that_is_gone_ends_without_a_fault() -> None:
    one = PatternSum("a*")
    one.set_names(["a1", "a2"], 0.0)
    summed(one, 1.0, a1=look(3), a2=look(4))
    one.set_names(["a1"], 2.0)
    found, fault = one.sum({"a1": look(3), "a2": GONE}, 2.0)
    assert found is not None
    assert (found.waiting, found.behind_seconds, fault) == (3, 0.0, "")


def test_one_that_was_never_looked_at_ages_the_sum_from_when_it_was_listed() -> None:
    one = PatternSum("a*")
    one.set_names(["a1"], 10.0)
    one.confirm_faults({"a1": GONE})
    found, fault = one.sum({"a1": GONE}, 25.0)
    assert found is not None
    assert (found.waiting, found.behind_seconds) == (0, 15.0)
    assert "no such queue" in fault


def test_more_queues_than_are_counted_are_a_fault_and_no_exact_sum() -> None:
    one = PatternSum("a*")
    one.set_names(["a1"], 0.0, "more than 1 match")
    found, fault = one.sum({"a1": look(3)}, 0.0)
    assert found is not None
    assert (found.waiting, found.exact, fault) == (3, False, "more than 1 match")


def test_a_fault_shows_the_beginning_of_a_long_name() -> None:
    name = "a" * 1_000_000
    one = PatternSum("a*")
    one.set_names([name], 0.0)
    one.confirm_faults({name: GONE})
    fault = one.sum({name: GONE}, 1.0).fault
    assert "no such queue" in fault and len(fault) < 300
