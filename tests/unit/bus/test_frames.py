"""Messages as protocol bytes: nothing that a caller says can break out of its line."""

from datetime import datetime

import msgspec
import pytest

from penstock.bus.headers import compared, direct_answer, own_headers, parse_headers, stored_headers
from penstock.bus.protocol import Expect, Outgoing
from penstock.bus.pull import stored
from penstock.bus.reading import _RawMessage
from penstock.bus.wire import frame


def test_a_message_without_headers_is_a_pub():
    assert frame(Outgoing("a.b", b"xyz"), b"_INBOX.1") == b"PUB a.b _INBOX.1 3\r\nxyz\r\n"


def test_headers_and_expectation_stand_before_the_body():
    message = Outgoing("a.b", b"xyz", {"Job": "zürich"}, Expect(7, "a.>"))
    first, rest = frame(message, b"r").split(b"\r\n", 1)
    verb, subject, reply, head, whole = first.split()
    assert (verb, subject, reply) == (b"HPUB", b"a.b", b"r")
    block, body = rest[: int(head)], rest[int(head) : int(whole)]
    assert body == b"xyz" and rest[int(whole) :] == b"\r\n"
    assert parse_headers(block)[1] == {
        "Job": "zürich",
        "Nats-Expected-Last-Subject-Sequence": "7",
        "Nats-Expected-Last-Subject-Sequence-Subject": "a.>",
    }


_COMPARED = b"Nats-Expected-Last-Subject-Sequence"
_BATCH = b"Nats-Batch-Id: %b\r\nNats-Batch-Sequence: 1\r\n" % (b"0a" * 16)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (b"%b: 7\r\n%b-Subject: a.>\r\n", Expect(7, "a.>")),
        (b"%b: 7\r\n%b-Subject: a.>\r\n%b: 9\r\n", None),  # the broker obeyed the first
        (b"%b: 7\r\n%b-Subject: a.>\r\n%b-Subject: b.>\r\n", None),
        (b"x: %b: 7\r\n%b-Subject: a.>\r\n", None),
        (b"%b: 7\r\n%b-Subject: a.>\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 2\r\n", None),
        (_BATCH + b"%b: 7\r\n%b-Subject: a.>\r\n", Expect(7, "a.>")),  # nothing of it is before
        (_BATCH.replace(b": 1", b": 2") + b"%b: 7\r\n%b-Subject: a.>\r\n", None),
        (_BATCH * 2 + b"%b: 7\r\n%b-Subject: a.>\r\n", None),
        (_BATCH + b"nats-batch-commit: 1\r\n%b: 7\r\n%b-Subject: a.>\r\n", None),
        (b"%b: 7\r\n", None),
        (b"%b: -7\r\n%b-Subject: a.>\r\n", None),
        (b"%b: \xc2\xb2\r\n%b-Subject: a.>\r\n", None),
        (b"", None),
    ],
)
def test_what_the_broker_compared_is_read_from_one_plain_header_alone(
    lines: bytes, expected: Expect | None
) -> None:
    block = b"NATS/1.0\r\n" + lines.replace(b"%b", _COMPARED) + b"\r\n"
    assert compared(block, parse_headers(block)[1]) == expected
    assert stored_headers(block)[1] == expected


_PARENT = b"traceparent: 00-1234-5678-01\r\n"
_CONDITION = b"%b: 7\r\n%b-Subject: a.>\r\n".replace(b"%b", _COMPARED)
_ANSWER = (
    b"Nats-Stream: S\r\nNats-Subject: a.b\r\nNats-Sequence: 9\r\n"
    b"Nats-Time-Stamp: 2026-11-23T18:59:32.976Z\r\nNats-Num-Pending: 3\r\n"
    b"Nats-Last-Sequence: 8\r\n"
)


@pytest.mark.parametrize("answer", [b"", _ANSWER, _ANSWER * 2, _ANSWER.replace(b": 8", b": ?")])
@pytest.mark.parametrize("condition", [b"", _CONDITION, _CONDITION * 2, _PARENT + _CONDITION])
@pytest.mark.parametrize("own", [b"", _PARENT, _PARENT * 2, b"traceparent: \xff\r\n", b"X: y\r\n"])
def test_headers_of_any_message_are_read_like_those_of_an_event(
    own: bytes, condition: bytes, answer: bytes
) -> None:
    block = b"NATS/1.0\r\n" + own + condition + answer + b"\r\n"
    headers = parse_headers(block)[1]
    expected = own_headers(headers), compared(block, headers)
    assert stored_headers(block) == expected
    if answer:
        assert direct_answer(block) == (("a.b", 9, "2026-11-23T18:59:32.976Z", 3), *expected)


def test_an_answer_of_the_broker_that_its_sender_wrote_into_a_message_does_not_count() -> None:
    forged = _ANSWER.replace(b"a.b", b"evil").replace(b": 9", b": 1")
    answer = direct_answer(b"NATS/1.0\r\n" + _CONDITION + forged + _ANSWER + b"\r\n")
    assert not isinstance(answer, int)
    assert answer[0][:2] == ("a.b", 9)


def test_the_end_of_an_answer_is_a_status() -> None:
    assert direct_answer(b"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n") == 204


def test_a_header_that_was_read_can_be_sent_on() -> None:
    block = b"NATS/1.0\r\nJob: 7\r\nX: a\rb\nc\r\nY: d\r\n\r\n"
    headers = parse_headers(block)[1]
    assert headers == {"Job": "7", "X": "a b c", "Y": "d"}
    assert b"X: a b c\r\n" in frame(Outgoing("a.b", b"", headers), b"")


@pytest.mark.parametrize(
    "headers",
    [
        {"a": "1\r\nNats-Rollup: all"},
        {"a": "1\n"},
        {"a": "1", "b": "\r"},
        {"a\r\nb": "1"},
        {"a:b": "1"},
    ],
)
def test_a_header_that_would_break_out_of_its_line_is_refused(headers):
    with pytest.raises(ValueError, match="line break or a colon"):
        frame(Outgoing("a.b", b"", headers), b"")


@pytest.mark.parametrize("subject", ["a b", "a\r\nPUB x 0", "", "a\tb"])
def test_a_subject_that_would_break_out_of_its_line_is_refused(subject):
    with pytest.raises(ValueError, match="blanks or control"):
        frame(Outgoing(subject, b""), b"")


@pytest.mark.parametrize("fraction", ["805022789", "000000999", "999999999", "805022000"])
def test_a_message_was_stored_at_one_moment_by_whatever_way_it_is_read(fraction):
    text = f"2026-11-24T04:35:15.{fraction}Z"
    seconds = int(datetime.fromisoformat(text[:19] + "Z").timestamp())
    reply = b"$JS.ACK.S.C.1.7.1.%d%b.0" % (seconds, fraction.encode())
    followed = stored("a.b", reply, b"", None).at
    raw = msgspec.convert({"subject": "a.b", "seq": 7, "time": text}, _RawMessage)
    assert followed == datetime.fromisoformat(text) == datetime.fromisoformat(raw.time)
