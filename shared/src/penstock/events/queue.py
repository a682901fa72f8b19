"""What is done to whole queues."""

from __future__ import annotations

from typing import ClassVar

from penstock.events.envelope import Codec, Event, Instant


class QueueEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "queue"
    key_field: ClassVar[str] = "queue"

    queue: str


class QueuePaused(QueueEvent, frozen=True, kw_only=True, tag=True):
    """No worker is given a job of this queue any more; running jobs go on.

    Attributes:
        until: when the pause ends by itself; None: it lasts until the queue is resumed.
    """

    reason: str = ""
    until: Instant | None = None


class QueueResumed(QueueEvent, frozen=True, kw_only=True, tag=True):
    """Its jobs are given out again. What they waited before does not count as late.

    A pause that ended by itself is recorded by the orchestrator, with ``at`` when it ended.
    """


QUEUE_EVENTS = Codec(QueuePaused, QueueResumed)
