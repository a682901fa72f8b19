"""Subjects with wildcards match as NATS matches them, token by token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bus.patterns import matches

TOKENS = st.sampled_from(["a", "b", "a+", "*", "[ab]", "\n", "ab"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.builds(
    lambda subject, ending: subject + ending, SUBJECTS, st.sampled_from(["", ".>", ".*"])
)


def by_token(pattern: str, subject: str) -> bool:
    wanted, actual = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(actual) <= len(wanted):
            return False
    elif len(wanted) != len(actual):
        return False
    return all(want in ("*", token) for want, token in zip(wanted, actual, strict=False))


@given(PATTERNS, SUBJECTS)
def test_a_subject_matches_as_its_tokens_do(pattern: str, subject: str) -> None:
    assert matches(pattern, subject) is by_token(pattern, subject)


@pytest.mark.parametrize(
    ("pattern", "subject", "is_match"),
    [
        (">", "a", True),
        ("a.>", "a", False),
        ("a.>", "a.b.c", True),
        ("a.*", "a.b.c", False),
        ("a.*.c", "a.b.c", True),
        ("a.b", "a.b", True),
        ("a.b", "aXb", False),
    ],
)
def test_wildcards(pattern: str, subject: str, is_match: bool) -> None:
    assert matches(pattern, subject) is is_match
