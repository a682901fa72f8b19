"""What is sealed opens only for its job, with its key; what is masked is not shown."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import ConfigError
from penstock.jobs import payload, sealing, showing
from penstock.jobs.errors import MissingKey, Undecryptable
from penstock.jobs.masking import MASK, masked
from penstock.jobs.payload import Payload
from penstock.jobs.registry import encode
from penstock.jobs.sealing import KeyRing, is_sealed

OLD, NEW = b"o" * 32, b"n" * 32
RING = KeyRing({"old": OLD})


@given(st.binary(max_size=200))
def test_it_opens_as_it_was(plain: bytes) -> None:
    sealed = RING.seal(plain, "arguments", "job-1")
    assert is_sealed(sealed)
    assert RING.open(sealed, "arguments", "job-1") == plain


def test_the_same_is_never_sealed_the_same() -> None:
    assert RING.seal(b"x", "result", "a") != RING.seal(b"x", "result", "a")


@pytest.mark.parametrize(("purpose", "about"), [("result", "job-1"), ("arguments", "job-2")])
def test_it_does_not_open_for_another_job_or_purpose(purpose: Any, about: str) -> None:
    sealed = RING.seal(b"x", "arguments", "job-1")
    with pytest.raises(Undecryptable, match="found the encrypted arguments of job job-1"):
        RING.open(sealed, purpose, about)


def test_what_it_says_about_itself_is_authenticated() -> None:
    found = sealing.unpack(RING.seal(b"x", "arguments", "job-1"))
    moved = msgspec.structs.replace(found, about="job-2")
    forged = encode(msgspec.msgpack.Ext(80, encode(moved)))
    with pytest.raises(Undecryptable, match="they were changed"):
        RING.open(forged, "arguments", "job-2")


@given(st.integers(0, 10_000))
def test_a_changed_bit_is_seen(place: int) -> None:
    sealed = bytearray(RING.seal(b"some arguments", "arguments", "j"))
    bit = place % (8 * len(sealed))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((Undecryptable, MissingKey)):
        RING.open(bytes(sealed), "arguments", "j")


def test_keys_rotate() -> None:
    before = RING.seal(b"x", "result", "j")
    ring = KeyRing({"new": NEW, "old": OLD})
    assert ring.open(before, "result", "j") == b"x"
    after = ring.seal(b"x", "result", "j")
    assert sealing.unpack(after).key == "new"
    with pytest.raises(MissingKey, match="need key 'new', known keys: old; add it to the file"):
        RING.open(after, "result", "j")
    with pytest.raises(MissingKey, match="nothing can be encrypted"):
        KeyRing().seal(b"x", "result", "j")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.binary(max_size=300),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
)


@given(VALUES)
def test_a_plain_value_is_not_taken_for_a_sealed_one(value: Any) -> None:
    assert not is_sealed(encode(value))


# --- the file -------------------------------------------------------------------------------------
def key_file(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "keys"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_file_of_keys(tmp_path: Path) -> None:
    line = base64.b64encode(NEW).decode()
    ring = sealing.load(key_file(tmp_path, f"# rotated in May\n2026-05 {line}\n\n"))
    assert sealing.unpack(ring.seal(b"x", "result", "j")).key == "2026-05"
    assert not sealing.load("")


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("a", 0o600, "line 1: expected 'id key'"),
        ("a b c", 0o600, "line 1: expected 'id key'"),
        ("a !!!!", 0o600, "expected 'id key', the key being 32 bytes in base64"),
        ("a YWJj", 0o600, "found 3 bytes"),
        (f"a {'A' * 43}=\na {'A' * 43}=", 0o600, "line 2: key 'a' is there twice"),
        (f"a {'A' * 43}=", 0o644, "has mode 0644, so others can read it; expected 0600"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, text: str, mode: int, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        sealing.load(key_file(tmp_path, text, mode))
    assert said in str(error.value)
    assert "YWJj" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        sealing.load(str(tmp_path / "none"))


# --- masking --------------------------------------------------------------------------------------
@given(VALUES)
def test_masked_names_are_not_shown_at_any_depth(value: Any) -> None:
    secret = {"Card": "4111", "deep": [{"a": {"CARD": value, "name": "x"}}]}
    assert masked(secret, ["card"]) == {
        "Card": MASK, "deep": [{"a": {"CARD": MASK, "name": "x"}}],
    }  # fmt: skip


def call(arguments: bytes, **more: Any) -> bytes:
    return payload.encode(
        Payload(
            id="j",
            function="f",
            queue="q",
            arguments=msgspec.Raw(arguments),
            dispatched_at=0,
            **more,
        )
    )


def test_what_is_shown_of_a_call() -> None:
    plain = encode({"card": "4111", "password": "x", "name": "y"})
    shown = {"card": MASK, "password": MASK, "name": "y"}
    assert showing.arguments(call(plain, masked=("card",))) == shown
    sealed = RING.seal(plain, "arguments", "j")
    assert showing.arguments(call(sealed)) == "(encrypted with key old)"
    handed = {"row": msgspec.Raw(encode({"card": 1})), "other": msgspec.Raw(sealed)}
    assert showing.arguments(call(encode({}), masked=("card",), handed=handed)) == {
        "row": {"card": MASK}, "other": "(encrypted with key old)",
    }  # fmt: skip
    assert showing.arguments(b"rubbish").startswith("(unreadable")


def test_what_is_shown_of_an_event() -> None:
    body = base64.b64encode(call(encode({"token": "t"}))).decode()
    tree = {"payload": body, "steps": [{"payload": body}], "result": "AAAA", "queue": "q"}
    assert showing.event(tree) == {
        "payload": {"token": MASK},
        "steps": [{"payload": {"token": MASK}}],
        "result": "(3 bytes; see 'penstock job show')",
        "queue": "q",
    }
