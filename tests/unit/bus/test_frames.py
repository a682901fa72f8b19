"""Messages as protocol bytes: nothing that a caller says can break out of its line."""

import pytest

from penstock.bus.protocol import Expect, Outgoing
from penstock.bus.wire import frame, parse_headers


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
