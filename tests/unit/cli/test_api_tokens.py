"""Tokens: their checksum, and what is stored of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.operations.api_tokens import digest, is_token, new_token


def test_a_new_token_has_the_form_and_no_two_are_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert all(is_token(token) and len(token) == 55 for token in tokens)


@given(place=st.integers(4, 54), character=st.sampled_from("abcdefXYZ0189-_"))
def test_one_mistyped_character_is_noticed(place: int, character: str) -> None:
    token = new_token()
    wrong = token[:place] + character + token[place + 1 :]
    assert is_token(wrong) == (wrong == token)


@given(st.text(max_size=200))
def test_other_text_is_no_token(text: str) -> None:
    assert not is_token(text)
    assert len(digest(text)) == 64
