"""The envelope every event wears, and how events become bytes and come back.

Events are frozen structs, tagged with their class name in the field ``type``. Changes are additive
only; a tag that this version does not know becomes :class:`UnknownEvent` and is passed on, so that
versions can be mixed while upgrading. The trace context travels in message headers, never here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, get_args, get_type_hints

import msgspec
from uuid_utils import uuid7

from penstock.events.brief import brief, brief_fields


def new_id() -> str:
    """A UUIDv7: unique without coordination, and sorting by time of creation."""
    return str(uuid7())


def utc_now() -> datetime:
    """The wall clock, UTC, in microseconds."""
    return datetime.now(UTC)


def whole_micros(seconds: float) -> float:
    """A duration in whole microseconds: more digits are noise, and take 12 bytes of each event."""
    return round(seconds * 1e6) / 1e6  # a fifth of the time of round(seconds, 6), each job has four


Instant = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time with its zone: two of them can always be compared.

A decoder of a type that is not read by a :class:`Codec` calls :func:`check_instant` for it.
"""

EARLIEST_YEAR, LATEST_YEAR = 1970, 9998
"""A year less than ``datetime`` has: with any zone's offset, such a time is one of UTC, too."""

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Every integer of an event: JSON has integers of thousands of digits, with which floats and
MessagePack overflow (``OverflowError``, which is no ``ValueError``)."""


class Event(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True, gc=False
):
    """Something that happened, in the past tense.

    Attributes:
        id: UUIDv7 of this event.
        at: when it happened, UTC.
        source: service and instance that recorded it, e.g. ``worker/host-a.7f3c``.
        causation_id: id of the event or message that led to this one.
        correlation_id: id of the history it belongs to (scaling round, batch of a callback); none
            for that of its own key: a job's event belongs to the job's history.
    """

    noun: ClassVar[str] = ""
    """Second token of the subject; set by each family of events."""
    key_field: ClassVar[str] = ""
    """Name of the field that gives the third token of the subject."""

    id: str = msgspec.field(default_factory=new_id)
    at: Instant = msgspec.field(default_factory=utc_now)
    source: str = ""
    causation_id: str | None = None
    correlation_id: str | None = None

    __repr__ = brief
    __rich_repr__ = brief_fields

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def key(self) -> str:
        """The aggregate this event belongs to: a job id, a pool, a host."""
        return str(getattr(self, self.key_field))


class UnknownEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a later version: kept whole, so that it can be passed on.

    Attributes:
        type: its tag; the name in its subject where the body cannot be read.
        unreadable: why the body is no event, or not one of this subject; empty for an event of a
            later version.
    """

    type: str
    raw: bytes
    unreadable: str = ""

    __repr__ = brief
    __rich_repr__ = brief_fields


class MalformedEvent(ValueError):
    """Bytes that are no event: says what was found and what was expected."""


def check_instant(field: str, at: datetime | None) -> None:
    """Refuses what cannot be turned to UTC or POSIX seconds.

    Raises:
        MalformedEvent: says which field, what was found and what was expected.
    """
    if at is not None and not EARLIEST_YEAR <= at.year <= LATEST_YEAR:
        raise MalformedEvent(
            f"found {field} = {at.isoformat()}, expected a time of the years {EARLIEST_YEAR} to "
            f"{LATEST_YEAR}"
        )


_encoder = msgspec.json.Encoder()


def encode(event: Event | UnknownEvent) -> bytes:
    """JSON bytes of an event; an unknown one comes out as it came in."""
    return event.raw if isinstance(event, UnknownEvent) else _encoder.encode(event)


class Codec:
    """Decodes any event of the given types.

    Args:
        types: the concrete event classes this codec knows.
    """

    def __init__(self, *types: type[Event]) -> None:
        self.types = {cls.__name__: cls for cls in types}
        union: Any = types[0]
        for cls in types[1:]:
            union = union | cls
        self._decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(union)
        self._further_instants = {cls: names for cls in types if (names := _further_instants(cls))}

    def __iter__(self) -> Iterator[type[Event]]:
        return iter(self.types.values())

    def decode(self, raw: bytes) -> Event | UnknownEvent:
        """The event in ``raw``.

        Raises:
            MalformedEvent: not JSON, no ``type``, fields of the wrong type, an integer beyond 64
                bits, or a time that is none of UTC.
        """
        try:
            event = self._decoder.decode(raw)
        except msgspec.ValidationError as error:
            tag = _tag(raw)
            if tag is None or tag in self.types:
                raise MalformedEvent(
                    f"found an event that does not fit its type: {error}"
                ) from error
            return UnknownEvent(type=tag, raw=raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedEvent(f"expected a JSON object with a field 'type': {error}") from error
        if not EARLIEST_YEAR <= event.at.year <= LATEST_YEAR:
            check_instant("at", event.at)
        for field in self._further_instants.get(type(event), ()):
            check_instant(field, getattr(event, field))
        return event


def _further_instants(cls: type[Event]) -> tuple[str, ...]:
    """Names of the fields that hold a time, but for that of the envelope."""
    return tuple(
        name
        for name, kind in get_type_hints(cls).items()
        if name != "at" and (kind is datetime or datetime in get_args(kind))
    )


class _Tagged(msgspec.Struct):
    type: str


def _tag(raw: bytes) -> str | None:
    try:
        return msgspec.json.decode(raw, type=_Tagged).type
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
