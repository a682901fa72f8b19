"""Which sequences a micro-batch covers, whatever was deleted, repeated or made anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.core.ranges import Extent, StreamChanged, advance, initial, split


def at(after: int, sequence: int, made: str = "monday") -> dict[str, object]:
    return {"after": after, "sequence": sequence, "made": made}


@given(st.integers(1, 10**9), st.integers(0, 10**6), st.integers(1, 64), st.integers(1, 10**5))
def test_tasks_share_a_range_without_gap_or_overlap(
    first: int, count: int, parts: int, least: int
) -> None:
    ranges = split(first, first + count - 1, parts, least)
    ends = [first - 1]
    for part in ranges:
        assert part.first == ends[-1] + 1
        ends.append(part.last)
    assert ends[-1] == first + count - 1
    assert len(ranges) <= parts
    assert all(part.last - part.first + 1 >= min(least, count) for part in ranges)


def test_a_batch_is_bounded_and_says_where_it_began() -> None:
    assert advance(at(0, 10), Extent(1, 100, "monday"), 20) == at(10, 30)
    assert advance(at(0, 10), Extent(1, 100, "monday"), None) == at(10, 100)


def test_without_news_the_offset_stays_the_very_same() -> None:
    start = at(3, 100)
    assert advance(start, Extent(1, 100, "monday"), 20) is start


def test_an_empty_stream_has_nothing_to_read() -> None:
    nothing = Extent(0, 0, "monday")
    start = initial(nothing, 0)
    assert advance(start, nothing, 20) is start
    assert advance(start, Extent(1, 1, "monday"), 20) == at(0, 1)


def test_what_expired_unread_is_skipped_or_refused() -> None:
    held = Extent(51, 100, "monday")
    assert advance(at(0, 10), held, 20) == at(50, 70)
    with pytest.raises(StreamChanged, match="11 to 50 were deleted before they were read"):
        advance(at(0, 10), held, 20, "fail")


def test_all_that_was_left_was_deleted() -> None:
    assert advance(at(0, 10), Extent(101, 100, "monday"), 20) == at(100, 100)


@pytest.mark.parametrize("found", [Extent(1, 100, "tuesday"), Extent(1, 5, "monday")])
def test_a_stream_that_was_made_anew_is_refused(found: Extent) -> None:
    with pytest.raises(StreamChanged, match="made anew; use a new checkpoint"):
        advance(at(0, 10), found, 20)
