"""A cursor is of one list of one console, and cannot be made or changed by a caller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.core.cursors import BadCursor, decode, encode

KEY = b"k" * 32


@given(st.tuples(st.integers(0, 2**53), st.text(max_size=40)), st.text(max_size=60))
def test_a_position_comes_back(position: tuple[int, str], listing: str) -> None:
    assert decode(encode(position, listing, KEY), listing, KEY) == position


@given(st.text(max_size=80))
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadCursor, match="leave it out"):
        decode(text, "jobs", KEY)


@pytest.mark.parametrize(
    ("listing", "key"), [("jobs state:dead", KEY), ("jobs", b"another console's key")]
)
def test_a_cursor_of_another_list_or_console_is_refused(listing: str, key: bytes) -> None:
    cursor = encode((1, "a"), "jobs", KEY)
    with pytest.raises(BadCursor):
        decode(cursor, listing, key)


def test_a_changed_cursor_is_refused() -> None:
    cursor = encode((1, "a"), "jobs", KEY)
    for position in range(len(cursor)):
        other = "A" if cursor[position] != "A" else "B"
        changed = cursor[:position] + other + cursor[position + 1 :]
        if changed != cursor:
            try:
                assert decode(changed, "jobs", KEY) == (1, "a"), "only unused bits may differ"
            except BadCursor:
                continue
