"""Header blocks of messages that come from the broker, taken apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from penstock.bus.protocol import Expect

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
"""The condition of a compare-and-set; with ``-Subject`` behind, the subjects that it is about."""

_LINE_BREAK = re.compile(r"[\r\n]")
_OF_BROKER = "Nats-"
_EXPECTED_KEY = EXPECTED.encode()
_BATCH_KEY = b"nats-batch-"
_MOST_DIGITS = 19
_FIRST_OF_BATCH = rb"Nats-Batch-Id: [0-9a-f]{32}\r\nNats-Batch-Sequence: 1\r\n"
_BEGINS_BATCH = re.compile(
    rb"NATS/1\.0\r\n(?:traceparent: [!-~]+\r\n)?%b%b: " % (_FIRST_OF_BATCH, _EXPECTED_KEY)
)
_EVENT = re.compile(
    rb"NATS/1\.0\r\n(?:traceparent: ([!-~]+)\r\n)?(?:%b)?"
    % _FIRST_OF_BATCH
    + rb"Nats-Expected-Last-Subject-Sequence: ([0-9]{1,19})\r\n"
    rb"Nats-Expected-Last-Subject-Sequence-Subject: ([!-~]+)\r\n"
    rb"(?:Nats-Stream: [!-~]+\r\nNats-Subject: ([!-~]+)\r\nNats-Sequence: ([0-9]+)\r\n"
    rb"Nats-Time-Stamp: ([!-~]+)\r\nNats-Num-Pending: ([0-9]+)\r\n"
    rb"Nats-Last-Sequence: [0-9]+\r\n)?\r\n"
)
"""The header block of nearly all events: what `frame` writes, and what the broker adds where it
answers a direct request. Any other is taken apart line by line, at twice the cost."""


def parse_headers(block: bytes | None) -> tuple[int, dict[str, str]]:
    """Status code (0 for none) and headers of a header block.

    The first value of a key counts; of the broker's own keys the last, since it adds them behind
    what the sender of a stored message wrote, who may have used the same names.

    The broker takes a lone CR or LF within a value; it becomes a blank, since a header that holds
    one could not be sent on.
    """
    if not block:
        return 0, {}
    text = block.decode("utf-8", "replace")
    lines = text.split("\r\n")
    if not text.count("\r") == text.count("\n") == len(lines) - 1:
        lines = [_LINE_BREAK.sub(" ", line) for line in lines]
    status = lines[0][9:12]
    headers: dict[str, str] = {}
    for line in lines[1:]:
        key, colon, value = line.partition(":")
        if colon and (key not in headers or key.startswith(_OF_BROKER)):
            headers[key] = value.strip()
    return int(status) if status.isdigit() else 0, headers


class DirectAnswer(NamedTuple):
    """A stored message's place, as the broker answers a direct request.

    Attributes:
        at: when it was stored, in ISO 8601.
        behind: how many messages follow in the answer.
    """

    subject: str
    sequence: int
    at: str
    behind: int


def stored_headers(block: bytes | None) -> tuple[dict[str, str], Expect | None]:
    """The sender's headers of a stored message, and the condition that held (see `compared`)."""
    if block is not None and (match := _EVENT.fullmatch(block)):
        return _of_event(match)
    headers = parse_headers(block)[1]
    return own_headers(headers), compared(block, headers)


def direct_answer(
    block: bytes | None,
) -> int | tuple[DirectAnswer, dict[str, str], Expect | None]:
    """What one message of the answer to a direct request says: a status, or a stored message."""
    if block is not None and (match := _EVENT.fullmatch(block)) and match[4]:
        answer = DirectAnswer(match[4].decode(), int(match[5]), match[6].decode(), int(match[7]))
        return answer, *_of_event(match)
    status, headers = parse_headers(block)
    if status:
        return status
    answer = DirectAnswer(
        subject=headers["Nats-Subject"],
        sequence=int(headers["Nats-Sequence"]),
        at=headers["Nats-Time-Stamp"],
        behind=int(headers["Nats-Num-Pending"]),
    )
    return answer, own_headers(headers), compared(block, headers)


def _of_event(match: re.Match[bytes]) -> tuple[dict[str, str], Expect]:
    parent, sequence, subject = match.group(1, 2, 3)
    headers = {"traceparent": parent.decode()} if parent else {}
    return headers, Expect(int(sequence), subject.decode())


def parse_lines(block: bytes | None) -> list[tuple[str, str]]:
    """All headers of a header block, repeated ones included."""
    lines = (block or b"").decode("utf-8", "replace").split("\r\n")[1:]
    parts = (line.partition(":") for line in lines)
    return [(key, value.strip()) for key, colon, value in parts if colon]


def own_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The sender's headers, without those that the broker reads or writes."""
    return {key: value for key, value in headers.items() if not key.startswith(_OF_BROKER)}


def compared(block: bytes | None, headers: Mapping[str, str]) -> Expect | None:
    """The condition on a subject that a stored message was sent with, which therefore held.

    The broker keeps these headers as they came, and obeys the first of a name: a message in which
    one of them, or its name, stands twice is taken for one without a condition. So is one of an
    atomic batch but the first: the broker (2.15) compares wildcards with what was stored before the
    batch, and passes over the batch's own messages.

    Args:
        block: the header block.
        headers: the same, as parsed.
    """
    if block is None or block.count(_EXPECTED_KEY) != 2:
        return None
    in_batch = block.lower().count(_BATCH_KEY)
    if in_batch and not (in_batch == 2 and _BEGINS_BATCH.match(block)):
        return None
    sequence, subject = headers.get(EXPECTED, ""), headers.get(f"{EXPECTED}-Subject", "")
    is_number = sequence.isascii() and sequence.isdigit() and len(sequence) <= _MOST_DIGITS
    return Expect(int(sequence), subject) if is_number and subject else None
