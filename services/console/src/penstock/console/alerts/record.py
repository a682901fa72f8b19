"""What the leading console keeps of alerts in one record, replaced by compare-and-set.

States and the messages that they led to are stored together, before any message is sent: the
console that leads next sends what was not sent.
"""

from __future__ import annotations

import zlib

import msgspec

from penstock.bus.protocol import Bus, Expect, Outgoing, Stored
from penstock.console.alerts.heartbeat import LastBeat
from penstock.console.core.alerts.notifying import notification_id
from penstock.console.core.alerts.states import Change, Notification, States
from penstock.events.subjects import Subjects

KIND = "alert"
RECORD, LEASE = "record", "lease"
_MOST_BYTES = 64 * 2**20
"""Of a record, uncompressed."""
MOST_OUTGOING = 500


class Outstanding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message on its way.

    Attributes:
        channel: that it goes to now; another than the notification's where that one failed.
        attempts: that were begun.
        tries: attempts at the present channel.
        next_at: POSIX seconds, not before which it is tried.
    """

    notification: Notification
    channel: str
    attempts: int = 0
    tries: int = 0
    next_at: float = 0.0


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All of it.

    Attributes:
        history: changes that are not stored as events yet.
        handled: sequence of the last act of a person that was applied: the leader that comes next
            goes on after it.
        heartbeat: what came of the last signs of life.
        problems: why rules cannot be evaluated, by their ids.
    """

    states: States = States()
    outgoing: tuple[Outstanding, ...] = ()
    history: tuple[Change, ...] = ()
    handled: int = 0
    heartbeat: LastBeat = LastBeat()
    problems: dict[str, str] = {}


class RecordStore:
    """Reads and replaces the record.

    Args:
        bus: a connection of this service.
        subjects: of the installation.
    """

    def __init__(self, bus: Bus, subjects: Subjects) -> None:
        self._bus, self._subjects = bus, subjects
        self.sequence = 0

    @property
    def subject(self) -> str:
        """Where it lies."""
        return self._subjects.state(KIND, RECORD)

    async def read(self) -> Record:
        """The record as it is; an empty one before the first."""
        stored = await self._bus.last(self._subjects.state_stream, self.subject)
        self.sequence = stored.sequence if stored else 0
        return parse(stored) if stored else Record()

    async def replace(self, record: Record) -> None:
        """Stores the next record. Raises WrongSequence: another console leads."""
        # Of 500 alerts to ten channels it is some MB; their texts are much alike.
        body = zlib.compress(msgspec.json.encode(record), level=1)
        message = Outgoing(self.subject, body, expect=Expect(self.sequence))
        self.sequence = await self._bus.append(message)


def parse(stored: Stored) -> Record:
    """The record in a message; an empty one where another version wrote it."""
    try:
        body = zlib.decompressobj().decompress(stored.body, _MOST_BYTES)
        return msgspec.json.decode(body, type=Record)
    except (ValueError, RecursionError, zlib.error):
        return Record()


def moved(
    waiting: Outstanding, failed: str, to: str, incidents: frozenset[str]
) -> tuple[Outstanding, ...]:
    """What becomes of a message that waits behind one that a channel did not take.

    Its entries of the same incidents go where that one went, or to no one: a channel that did not
    receive the firing message is not sent the resolved one.

    Args:
        waiting: the message.
        failed: the channel that did not take the earlier one.
        to: the channel that is given that; empty for none.
        incidents: of the alerts in the earlier one.
    """
    notification = waiting.notification
    concerned = tuple(one for one in notification.entries if one.incident in incidents)
    if waiting.channel != failed or not concerned:
        return (waiting,)
    others = tuple(one for one in notification.entries if one.incident not in incidents)
    parts: list[Outstanding] = []
    if others:
        kept = msgspec.structs.replace(notification, entries=others)
        parts.append(msgspec.structs.replace(waiting, notification=kept))
    if to:
        # A part of a message is another message: it has an id of its own.
        name = notification_id(to, concerned, notification.at) if others else notification.id
        given = msgspec.structs.replace(notification, id=name, entries=concerned)
        parts.append(Outstanding(notification=given, channel=to, attempts=waiting.attempts))
    return tuple(parts)
