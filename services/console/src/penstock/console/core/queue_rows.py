"""One row for each queue that was paused or resumed. Pure.

How many jobs a queue holds is counted with the jobs (`Table.counted`).
"""

from __future__ import annotations

import msgspec

from penstock.console.core.log_entry import LogEntry, micros
from penstock.events.queue import QueueEvent, QueuePaused, QueueResumed


class QueueStateRow(msgspec.Struct, frozen=True):
    """Whether a queue is paused, since when, until when, and why."""

    queue: str
    is_paused: bool
    changed_us: int
    reason: str = ""
    until_us: int | None = None


def key_of(entry: LogEntry) -> str | None:
    """The queue."""
    return entry.key if isinstance(entry.event, QueuePaused | QueueResumed) else None


def advance(row: QueueStateRow | None, entry: LogEntry) -> QueueStateRow | None:
    """The last pause or resume counts."""
    event = entry.event
    if not isinstance(event, QueueEvent):
        return row
    if not isinstance(event, QueuePaused):
        return QueueStateRow(event.queue, is_paused=False, changed_us=micros(event.at))
    return QueueStateRow(
        event.queue,
        is_paused=True,
        changed_us=micros(event.at),
        reason=event.reason,
        until_us=micros(event.until) if event.until else None,
    )
