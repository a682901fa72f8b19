"""Stored messages in a file, one a line, as a JSON list: what `--save` of a command writes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from penstock.bus.protocol import Stored

_LATEST = 253_370_764_800  # the year 9999
MOST_LINE_BYTES = 64 * 1024 * 1024
"""A message of NATS is at most this long, in which the body of a line is."""
_NOTHING = msgspec.Raw(b"null")


class BadLog(ValueError):
    """A file that is no exported log: says where, what was found and what was expected."""


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A stored message: ``at`` is when the broker stored it, POSIX seconds.

    ``sequence`` is that of its stream; 0 where another stream's order counts.
    """

    sequence: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    at: Annotated[float, Meta(ge=0, lt=_LATEST)]
    subject: str
    body: msgspec.Raw


_decode = msgspec.json.Decoder(Entry).decode
_encode = msgspec.json.Encoder().encode


def entry(stored: Stored) -> Entry:
    """The entry of a message; a body that is no JSON, which its readers skip, is left out."""
    try:
        body = msgspec.Raw(stored.body)
        msgspec.json.decode(stored.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        body = _NOTHING
    return Entry(stored.sequence, stored.at.timestamp(), stored.subject, body)


def outside(one: Entry) -> Entry:
    """An entry that has no place in the order of the others."""
    return msgspec.structs.replace(one, sequence=0)


def line(one: Entry) -> bytes:
    return _encode(one) + b"\n"


def read(file: BinaryIO, end: int | None = None) -> Iterator[tuple[int, Entry]]:
    """Entries and where each begins, from where the file stands; the last begins before ``end``.

    Raises:
        BadLog: a line is no entry.
    """
    offset = file.tell()
    while raw := file.readline(MOST_LINE_BYTES):
        if len(raw) == MOST_LINE_BYTES and not raw.endswith(b"\n"):
            raise BadLog(
                f"at byte {offset}: found a line of {MOST_LINE_BYTES:,} bytes or more, expected a "
                "message on each"
            )
        if end is not None and offset >= end:
            return
        try:
            yield offset, _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadLog(
                f"at byte {offset}: found {raw[:60]!r}, expected a line as '--save' writes it "
                f"({error})"
            ) from error
        offset += len(raw)
