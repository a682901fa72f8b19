"""The head of the first batch of records in what a Kafka broker stores, without its records.

Formats: https://kafka.apache.org/documentation/#recordbatch, and of messages before Kafka 0.11.
"""

from __future__ import annotations

import struct

import msgspec

_PREFIX = struct.Struct(">qi4xb")
"""Offset, size, and the version of the format, which is at the same place in all of them."""
_BATCH = struct.Struct(">qiibIhiqqqhii")
_MESSAGE = struct.Struct(">qiIbbq")
_IS_APPEND_TIME, _IS_CONTROL = 0x08, 0x20


class RecordBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch says of its records.

    Attributes:
        offset: of its first record.
        next_offset: after its last.
        first_ms: timestamp of the first record in POSIX milliseconds; None where it has none.
        last_ms: the latest timestamp.
        is_empty: it holds no record for consumers, but the end of a transaction, or nothing any
            more since the topic was compacted.
    """

    offset: int
    next_offset: int
    first_ms: int | None
    last_ms: int | None
    is_empty: bool = False

    def timestamp(self, offset: int) -> float | None:
        """About the POSIX seconds of the record at an offset: timestamps are taken to grow evenly.

        Records may be compressed: they are not unpacked for this.
        """
        if self.first_ms is None or self.last_ms is None:
            return None
        steps = self.next_offset - self.offset - 1
        share = min(max(offset - self.offset, 0) / steps, 1.0) if steps > 0 else 0.0
        return (self.first_ms + (max(self.last_ms, self.first_ms) - self.first_ms) * share) / 1000


def first_batch(stored: bytes) -> RecordBatch | None:
    """The first batch in the answer to a fetch; None where there is none, or no whole head of one.

    Args:
        stored: as the broker sent it; its end may be missing.
    """
    if len(stored) < _PREFIX.size:
        return None
    offset, _, version = _PREFIX.unpack_from(stored)
    if version < 2:
        return _message(stored, offset, version)
    if len(stored) < _BATCH.size:
        return None
    _, _, _, _, _, attributes, last_delta, first_ms, last_ms, *_, count = _BATCH.unpack_from(stored)
    if last_delta < 0:
        return None
    if attributes & _IS_APPEND_TIME:
        first_ms = last_ms
    return RecordBatch(
        offset=offset,
        next_offset=offset + last_delta + 1,
        first_ms=None if first_ms < 0 else first_ms,
        last_ms=None if last_ms < 0 else last_ms,
        is_empty=bool(attributes & _IS_CONTROL) or not count,
    )


def _message(stored: bytes, offset: int, version: int) -> RecordBatch | None:
    """One message of an old format; of several that are compressed together, the last."""
    if len(stored) < _MESSAGE.size:
        return None
    at_ms = _MESSAGE.unpack_from(stored)[5] if version == 1 else -1
    at_ms = None if at_ms < 0 else at_ms
    return RecordBatch(offset=offset, next_offset=offset + 1, first_ms=at_ms, last_ms=at_ms)
