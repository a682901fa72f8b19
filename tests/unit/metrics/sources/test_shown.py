"""What of another system's text is shown."""

from __future__ import annotations

import pytest

from penstock.metrics.sources.shown import shown


@pytest.mark.parametrize("before", range(270, 305))
def test_no_part_of_a_secret_stands_where_a_text_is_cut(before: int) -> None:
    text = "x" * before + " s3cret-of-mine" + "y" * 300
    assert "s3c" not in shown(text, "s3cret-of-mine")
    assert "mine" not in shown(
        text[::-1] + " s3cret-of-mine" + "y" * before, "s3cret-of-mine", end=True
    )


@pytest.mark.parametrize(
    ("text", "secret", "line"),
    [
        ("refused: TOKEN12", "Bearer TOKEN12", "refused: ***"),
        ("no user at //u:p%40ss%2Fword@h", "p@ss/word", "no user at //u:***@h"),
        ("KEYID and SECRET/KEY", "KEYID:SECRET/KEY", "*** and ***"),
        ("a of b", "a:long-part", "a of b"),
        ("password=hunter2\n\x1b[2J\u202e", "", "password=***"),
        ("a\nb\x1b\u202ec", "", "a\\nb\ufffd\ufffdc"),
        ("", "", "no reason given (str)"),
    ],
)
def test_secrets_are_hidden_and_the_rest_is_one_line(text: str, secret: str, line: str) -> None:
    assert shown(text, secret).startswith(line)


def test_a_secret_that_is_a_part_of_another_leaves_none_of_it() -> None:
    assert shown("ab abcd abc pass-word", "abc", "abcd", "pass word") == "ab *** *** ***-***"


def test_an_error_without_text_is_named() -> None:
    assert shown(TimeoutError()) == "no reason given (TimeoutError)"
