"""One message of the event log as the read models fold it. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.events.envelope import Event, UnknownEvent


class LogEntry(NamedTuple):
    """An event where it lies in the log.

    Attributes:
        sequence: in the stream.
        noun: second token of its subject.
        key: third token of its subject: the job, pool, … that it belongs to.
        event: an UnknownEvent where this version cannot read it.
        stored_us: when the broker stored it, in microseconds since 1970; 0 where that is not known.
    """

    sequence: int
    noun: str
    key: str
    event: Event | UnknownEvent
    stored_us: int = 0


def micros(at: datetime) -> int:
    """Microseconds since 1970, as all rows hold times."""
    return round(at.timestamp() * 1_000_000)


def micros_or_none(at: datetime | None) -> int | None:
    """The same; None stays None."""
    return None if at is None else micros(at)
