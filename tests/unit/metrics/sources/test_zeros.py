"""Zeros that are believed at the third look, and those that are believed at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.metrics.core.sources.zeros import LOOKS, Counts, believed

COUNTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=30)


def after(*looks: tuple[int, int]) -> list[tuple[int, int]]:
    """What is believed after each look."""
    counts: Counts | None = None
    pairs = []
    for waiting, claimed in looks:
        counts = believed(counts, waiting, claimed)
        pairs.append((counts.waiting, counts.claimed))
    return pairs


def test_a_zero_is_believed_at_the_third_look() -> None:
    assert after((5, 0), (0, 0), (0, 0), (0, 0)) == [(5, 0), (5, 0), (5, 0), (0, 0)]
    assert after((0, 2), (0, 0), (0, 0), (0, 0)) == [(0, 2), (0, 2), (0, 2), (0, 0)]


def test_looks_are_counted_anew_after_one_that_finds_something() -> None:
    assert after((5, 0), (0, 0), (0, 0), (4, 0), (0, 0), (0, 0), (0, 0))[-3:] == [
        (4, 0),
        (4, 0),
        (0, 0),
    ]


def test_none_waits_where_as_many_were_taken() -> None:
    assert after((5, 1), (0, 6)) == [(5, 1), (0, 6)]
    assert after((500, 1), (0, 6)) == [(500, 1), (500, 6)]


def test_the_first_look_is_believed() -> None:
    assert after((0, 0)) == [(0, 0)]


@given(COUNTS)
def test_a_count_is_believed_and_none_but_zeros_are_doubted(looks) -> None:
    for (waiting, claimed), pair in zip(looks, after(*looks), strict=True):
        assert pair[0] == waiting or not waiting
        assert pair[1] == claimed or not claimed


@given(COUNTS, st.integers(LOOKS, 9))
def test_zeros_that_last_are_believed(looks, more) -> None:
    assert after(*looks, *[(0, 0)] * more)[-1] == (0, 0)
