"""Dead letters that were deleted. A requeued job has an event of its own: `JobRevived`."""

from __future__ import annotations

from typing import Any, ClassVar

from penstock.events.envelope import Codec, Event, Int64


class DeadLettersDeleted(Event, frozen=True, kw_only=True, tag=True):
    """Dead letters of a queue were given up: these jobs can only be retried while events last.

    Attributes:
        count: number of dead letters that were deleted.
        matching: the filter that chose them; the id of a single one.
        reason: who wanted it, for people.
    """

    noun: ClassVar[str] = "queue"
    key_field: ClassVar[str] = "queue"

    queue: str
    count: Int64
    matching: dict[str, Any] = {}
    reason: str = ""


DEAD_EVENTS = Codec(DeadLettersDeleted)
