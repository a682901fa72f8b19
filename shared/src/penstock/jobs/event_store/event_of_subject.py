"""A stored message as the event of its subject: of the event log, a snapshot, or an order."""

from __future__ import annotations

import msgspec

from penstock.bus.protocol import Stored
from penstock.events.catalogue import ALL
from penstock.events.envelope import Event, MalformedEvent
from penstock.events.orders import HostOrder, PoolHeld, PoolReleased
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, SourceUnread
from penstock.events.subjects import Subjects


def event_of_subject(stored: Stored, subjects: Subjects) -> Event | None:
    """The event that a message holds, for readers of many kinds at once.

    A key may write anything to the subjects of its role. So what is not of this version, cannot be
    read, or is another event than its subject says is none: a job's subject holds no snapshot of a
    host. The event is no later than the broker stored it, whatever its sender says.

    Args:
        stored: as the stream keeps it.
        subjects: of the installation.
    """
    try:
        event = ALL.decode(stored.body)
    except MalformedEvent:
        return None  # the service that it is meant for logs an error
    if not isinstance(event, Event) or stored.subject not in _places(event, subjects):
        return None
    return no_later(event, stored)


def no_later(event: Event, stored: Stored) -> Event:
    """The event, at most as late as the broker stored it."""
    if event.at <= stored.at:
        return event
    return msgspec.structs.replace(event, at=stored.at)


def _places(event: Event, subjects: Subjects) -> tuple[str, ...]:
    match event:
        case PoolSnapshot() | SourceUnread():
            return (subjects.pool_snapshot(event.pool),)
        case HostSnapshot():
            return (subjects.host_snapshot(event.host),)
        case PoolHeld() | PoolReleased():
            return (subjects.event(event), subjects.state("hold", event.pool))
        case HostOrder():
            return (subjects.event(event), subjects.state("host", event.host))
    return (subjects.event(event),)
