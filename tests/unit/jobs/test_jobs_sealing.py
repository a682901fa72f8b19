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
from penstock.config.masking import MASK, masked
from penstock.jobs.errors import MissingKey, Undecryptable
from penstock.jobs.job_type import encode
from penstock.jobs.payloads import encryption, payload, redaction
from penstock.jobs.payloads.encryption import KeyRing, is_sealed
from penstock.jobs.payloads.payload import Payload
from penstock.jobs.retry import Backoff

OLD, NEW = b"o" * 32, b"n" * 32
RING = KeyRing({"old": OLD})


JOB_1 = encryption.about_result("job-1", "pay", "work")


@given(st.binary(max_size=200))
def test_it_opens_as_it_was(plain: bytes) -> None:
    sealed = RING.seal(plain, JOB_1)
    assert is_sealed(sealed)
    assert RING.open(sealed, JOB_1) == plain


def test_the_same_is_never_sealed_the_same() -> None:
    assert RING.seal(b"x", JOB_1) != RING.seal(b"x", JOB_1)


@pytest.mark.parametrize(
    "other",
    [
        {"purpose": "checkpoint"},
        {"job": "job-2"},
        {"function": "show"},
        {"queue": "other"},
        {"call": b"x"},
        {"takes": {"rows": "job-0"}},
    ],
    ids=str,
)
def test_it_opens_for_nothing_else(other: dict[str, Any]) -> None:
    with pytest.raises(Undecryptable):
        RING.open(RING.seal(b"x", JOB_1), msgspec.structs.replace(JOB_1, **other))


@pytest.mark.parametrize("field", ["purpose", "job", "function", "queue", "takes"])
def test_what_it_says_about_itself_is_authenticated(field: str) -> None:
    envelope = encryption.unpack(RING.seal(b"x", JOB_1))
    lie: Any = {"rows": "job-0"} if field == "takes" else "result-2"
    forged = encode(
        msgspec.msgpack.Ext(80, encode(msgspec.structs.replace(envelope, **{field: lie})))
    )
    with pytest.raises(Undecryptable, match="were changed"):
        RING.open(forged, msgspec.structs.replace(JOB_1, **{field: lie}))


@given(st.integers(0, 10_000))
def test_a_changed_bit_is_seen(place: int) -> None:
    sealed = bytearray(RING.seal(b"some arguments", JOB_1))
    bit = place % (8 * len(sealed))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((Undecryptable, MissingKey)):
        RING.open(bytes(sealed), JOB_1)


def test_what_an_earlier_version_sealed_is_refused_with_the_format() -> None:
    old = encode(msgspec.msgpack.Ext(80, encode(["old", "result", "job-1", b"n" * 12, b"box"])))
    assert is_sealed(old)
    with pytest.raises(Undecryptable, match="not a value encrypted in format 2"):
        RING.open(old, JOB_1)


def test_keys_rotate() -> None:
    before = RING.seal(b"x", JOB_1)
    ring = KeyRing({"new": NEW, "old": OLD})
    assert ring.open(before, JOB_1) == b"x"
    after = ring.seal(b"x", JOB_1)
    assert encryption.unpack(after).key == "new"
    with pytest.raises(MissingKey, match="need key 'new', known keys: old; add it to the file"):
        RING.open(after, JOB_1)
    with pytest.raises(MissingKey, match="nothing can be encrypted"):
        KeyRing().seal(b"x", JOB_1)


# --- a call's arguments ---------------------------------------------------------------------------
PLAIN = encode({"card": "4111"})
PAY = Payload(
    id="a",
    function="pay",
    queue="work",
    arguments=msgspec.Raw(PLAIN),
    dispatched_at=5.0,
    timeout_seconds=5,
    tags=("t",),
)


def sealed_call(call: Payload = PAY, **about: Any) -> Payload:
    box = RING.seal(call.arguments, encryption.about_arguments(call, **about))
    return msgspec.structs.replace(call, arguments=msgspec.Raw(box))


def travelled(call: Payload, **changes: Any) -> Payload:
    """As a worker reads it from a message, with some fields changed on the way."""
    return payload.decode(payload.encode(msgspec.structs.replace(call, **changes)))


CHANGED: dict[str, Any] = {
    "id": "b",
    "function": "show",
    "queue": "other",
    "tries": 9,
    "timeout_seconds": 6.0,
    "backoff": Backoff(first_seconds=9.0),
    "tags": ("t", "u"),
    "expires_at": 9.0,
    "masked": ("card",),
    "workflow_timeout_seconds": 7.0,
    "kind": "workflow",
}


def test_every_field_of_a_call_is_bound_or_known_to_change() -> None:
    free = {"arguments", "dispatched_at", "handed", "step", "version", "workflow"}
    assert set(Payload.__struct_fields__) == CHANGED.keys() | free


@pytest.mark.parametrize("field", CHANGED)
def test_arguments_do_not_open_in_a_call_that_was_changed(field: str) -> None:
    call = travelled(sealed_call(), **{field: CHANGED[field]})
    with pytest.raises(Undecryptable):
        encryption.arguments(call, RING)


@given(st.floats(0, 1e9), st.integers(0, 10**6), st.lists(st.text(max_size=5)).map(tuple))
def test_arguments_open_in_the_call_they_were_sealed_in(
    seconds: float, tries: int, tags: tuple[str, ...]
) -> None:
    call = msgspec.structs.replace(PAY, timeout_seconds=seconds, tries=tries, tags=tags)
    assert (
        bytes(encryption.arguments(travelled(sealed_call(call), dispatched_at=9.0), RING)) == PLAIN
    )


def test_arguments_open_whether_defaults_were_written_out_or_not() -> None:
    """Earlier versions wrote limits of 0 and a plain backoff out, into the message and its seal."""
    plain = msgspec.structs.replace(PAY, timeout_seconds=payload.UNLIMITED)
    zero = float("0")  # equal to the default, and another object
    written_out = msgspec.structs.replace(
        plain, timeout_seconds=zero, expires_at=zero, backoff=Backoff()
    )
    assert len(payload.encode(written_out)) > len(payload.encode(plain))
    for call in (plain, written_out):
        assert bytes(encryption.arguments(travelled(sealed_call(call)), RING)) == PLAIN


def test_a_callback_opens_after_its_batch_was_reopened_and_no_other_does() -> None:
    call = sealed_call(msgspec.structs.replace(PAY, id="nightly_then"))
    assert bytes(encryption.arguments(travelled(call, id="nightly_then_2"), RING)) == PLAIN
    with pytest.raises(Undecryptable):
        encryption.arguments(travelled(call, id="nightly_catch"), RING)


@pytest.mark.parametrize(
    ("job_id", "opens"),
    [
        ("s-gen-1764", True),
        ("s-gen-now", True),
        ("s-gen", False),
        ("s-gen2-1", False),
        ("a", False),
    ],
)
def test_a_template_opens_for_the_jobs_of_its_schedule(job_id: str, opens: bool) -> None:
    template = sealed_call(template="s-gen")
    call = travelled(template, id=job_id, expires_at=9.0)
    if opens:
        assert bytes(encryption.arguments(call, RING)) == PLAIN
        return
    with pytest.raises(Undecryptable):
        encryption.arguments(call, RING)


def test_arguments_of_a_job_are_no_template_for_ids_that_begin_like_its_own() -> None:
    with pytest.raises(Undecryptable):
        encryption.arguments(travelled(sealed_call(), id="a-1"), RING)


SECRET = msgspec.Raw(RING.seal(encode("4111"), encryption.about_result("g_step_0", "read", "work")))


def step(index: int, **about: Any) -> Payload:
    call = msgspec.structs.replace(PAY, id=f"g_step_{index}", arguments=msgspec.Raw(encode({})))
    return sealed_call(call, **about)


def test_a_step_opens_the_sealed_result_that_its_own_seal_names() -> None:
    taking = travelled(step(1, takes={"card": "g_step_0"}), handed={"card": SECRET})
    assert msgspec.msgpack.decode(encryption.arguments(taking, RING)) == {"card": "4111"}
    assert encryption.holds_sealed(taking)


@pytest.mark.parametrize(
    "forged",
    [
        msgspec.structs.replace(PAY, id="g_step_9", arguments=msgspec.Raw(encode({}))),
        step(9),
        step(1, takes={"card": "g_step_2"}),
        step(1, takes={"other": "g_step_0"}),
    ],
    ids=["plain arguments", "it takes nothing", "it takes another's", "another parameter"],
)
def test_no_other_step_opens_it(forged: Payload) -> None:
    with pytest.raises(Undecryptable, match="which its own arguments do not name"):
        encryption.arguments(travelled(forged, handed={"card": SECRET}), RING)


def test_plain_results_are_handed_on_as_they_are() -> None:
    plain = {"outcome": msgspec.Raw(encode("completed"))}
    opened = encryption.arguments(travelled(step(1), handed=plain), RING)
    assert msgspec.msgpack.decode(opened) == {"outcome": "completed"}
    call = msgspec.structs.replace(PAY, handed=plain)
    assert not encryption.holds_sealed(call)
    assert encryption.holds_sealed(travelled(PAY, handed={"card": SECRET}))


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
    ring = encryption.load(key_file(tmp_path, f"# rotated in May\n2026-05 {line}\n\n"))
    assert encryption.unpack(ring.seal(b"x", JOB_1)).key == "2026-05"
    assert not encryption.load("")


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
        encryption.load(key_file(tmp_path, text, mode))
    assert said in str(error.value)
    assert "YWJj" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        encryption.load(str(tmp_path / "none"))


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
    assert redaction.arguments(call(plain, masked=("card",))) == shown
    sealed = RING.seal(plain, JOB_1)
    assert redaction.arguments(call(sealed)) == "(encrypted with key old)"
    handed = {"row": msgspec.Raw(encode({"card": 1})), "other": msgspec.Raw(sealed)}
    assert redaction.arguments(call(encode({}), masked=("card",), handed=handed)) == {
        "row": {"card": MASK}, "other": "(encrypted with key old)",
    }  # fmt: skip
    assert redaction.arguments(b"rubbish").startswith("(unreadable")


def test_what_is_shown_of_an_event() -> None:
    body = base64.b64encode(call(encode({"token": "t"}))).decode()
    tree = {"payload": body, "steps": [{"payload": body}], "result": "AAAA", "queue": "q"}
    assert redaction.event(tree) == {
        "payload": {"token": MASK},
        "steps": [{"payload": {"token": MASK}}],
        "result": "(3 bytes; see 'penstock job show')",
        "queue": "q",
    }
