"""The filter of lists as text: what is read is what is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.console.core.job_query import BadFilter, JobQuery, read

WORD = st.text(
    st.characters(codec="ascii", exclude_characters='"\\', min_codepoint=33), max_size=12
)


def test_a_filter_is_read() -> None:
    query = read('state:dead queue:reports err:"timed out" orders')
    assert query == JobQuery(state="dead", queue="reports", error="timed out", text="orders")


def test_arguments_are_read() -> None:
    query = read('args.table:orders args.day:"24 Dec" state:dead args.table:items')
    items = ("table=orders", "day=24 Dec", "table=items")
    assert query == JobQuery(state="dead", args=items)
    assert query.argument_names == ("table", "day")
    assert read(query.words) == query


ARGUMENTS = st.lists(WORD.map(lambda value: f"table={value}"), max_size=3, unique=True).map(tuple)


@given(st.builds(JobQuery, queue=WORD, function=WORD, tag=WORD, error=WORD, args=ARGUMENTS))
def test_its_words_lead_back_to_it(query: JobQuery) -> None:
    assert read(query.words) == query


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("color:red", "expected state:, queue:"),
        ("state:gone", "expected one of scheduled, waiting"),
        ("queue:a queue:b", "named twice"),
        ("args.:x", "expected state:"),
        (" ".join(f"args.a{n}:x" for n in range(9)), "found 9 arguments, expected 8"),
        ("args.table:" + "x" * 300, "longer than 200"),
        ("function:" + "f" * 300, "longer than 200"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_was_expected(text: str, problem: str) -> None:
    with pytest.raises(BadFilter, match=problem):
        read(text)
