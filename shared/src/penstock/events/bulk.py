"""Bulk actions of the console: what was started, how far it is, how it ended; on ``CONSOLE``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from penstock.events.envelope import Codec, Event, Instant, Int64


class BulkEvent(Event, frozen=True, kw_only=True):
    """One bulk action; its events are appended by compare-and-set.

    Attributes:
        by: who caused it; empty for the console itself.
    """

    noun: ClassVar[str] = "bulk"
    key_field: ClassVar[str] = "bulk_id"

    bulk_id: str
    by: str = ""


class BulkStarted(BulkEvent, frozen=True, kw_only=True, tag=True):
    """A bulk action on all that matched at one moment.

    Attributes:
        verb: what is done to each, such as ``retry``.
        target: ``jobs``, ``workflows``, ``batches`` or ``graphs``.
        filter: which ones, as text.
        ids: the ones that were named instead of a filter.
        queues: the only queues that its starter may act on; none for any.
        position: event of the log as of which the set was chosen.
        chosen_at: when that was.
        total: how many matched.
        per_second: speed limit.
        title: given by its starter.
        reason: stored with the events of what is acted on.
        tags: that each is given, or loses.
        to_queue: that each is moved to.
    """

    verb: str
    target: str
    position: Int64
    chosen_at: Instant
    total: Int64
    per_second: Int64
    filter: str = ""
    ids: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    title: str = ""
    reason: str = ""
    tags: tuple[str, ...] = ()
    to_queue: str = ""


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """One that was not acted on, and why."""

    id: str
    text: str


class BulkProgressed(BulkEvent, frozen=True, kw_only=True, tag=True):
    """How far it is; replaces what the one before says.

    Attributes:
        after: what was reached: time in microseconds and id; None before the first.
        counted_to: event of the log up to which what the action did is counted.
        done: that were acted on.
        refused: that were not.
        reasons: how many were not, by why.
        examples: some of those.
    """

    done: Int64
    refused: Int64
    after: tuple[Int64, str] | None = None
    counted_to: Int64 = 0
    reasons: Mapping[str, Int64] = {}
    examples: tuple[Refused, ...] = ()


class BulkPaused(BulkEvent, frozen=True, kw_only=True, tag=True):
    """Nothing further is acted on until it is resumed."""


class BulkResumed(BulkEvent, frozen=True, kw_only=True, tag=True):
    """It goes on where it was.

    Attributes:
        per_second: another speed limit; 0 for the one it had.
    """

    per_second: Int64 = 0


class BulkAborted(BulkEvent, frozen=True, kw_only=True, tag=True):
    """It ends here; what was done stays."""


class BulkEnded(BulkEvent, frozen=True, kw_only=True, tag=True):
    """All were looked at."""


BULK_EVENTS = Codec(BulkStarted, BulkProgressed, BulkPaused, BulkResumed, BulkAborted, BulkEnded)
"""What the stream ``CONSOLE`` holds of bulk actions."""
