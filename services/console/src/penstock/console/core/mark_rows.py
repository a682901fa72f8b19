"""One row for each event that the time bar marks besides decisions. Pure."""

from __future__ import annotations

import msgspec

from penstock.console.core.log_entry import LogEntry, micros
from penstock.events.orders import HostDrained, HostPaused, HostResumed
from penstock.events.scaling import PromiseBurning, SlaBreached
from penstock.events.worker import HostJoined, HostLeft, HostLost

_MARKED = (
    *(SlaBreached, PromiseBurning),
    *(HostJoined, HostLeft, HostLost, HostPaused, HostDrained, HostResumed),
)


class MarkRow(msgspec.Struct, frozen=True):
    """An event at which a reader may want to look at everything.

    Attributes:
        about: the pool or host.
        sequence: of its event in the log.
        at_us: when it was stored: what is shown as of then has it.
        kind: name of the event.
    """

    id: str
    about: str
    sequence: int
    at_us: int
    kind: str


def key_of(entry: LogEntry) -> str | None:
    """The event's own id."""
    return entry.event.id if isinstance(entry.event, _MARKED) else None


def advance(row: MarkRow | None, entry: LogEntry) -> MarkRow | None:
    """A mark is one event: the first with its id counts."""
    event = entry.event
    if row is not None or not isinstance(event, _MARKED):
        return row
    return MarkRow(
        id=event.id,
        about=entry.key,
        sequence=entry.sequence,
        at_us=entry.stored_us or micros(event.at),
        kind=event.name,
    )
