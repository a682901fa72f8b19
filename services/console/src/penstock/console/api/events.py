"""The event log as server-sent events, for those who do not speak NATS."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from difflib import get_close_matches
from time import monotonic
from typing import Annotated, Any

import msgspec
from litestar import Request
from litestar.exceptions import NotFoundException, ValidationException
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.response import Stream

from penstock.bus import lookback
from penstock.bus.protocol import Stored
from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    EVENT_STREAM,
    Limit,
    Listing,
    Routes,
    read,
    whole,
)
from penstock.console.live.places import Places
from penstock.console.parts import Console
from penstock.console.read_models.fair_reads import CALLER
from penstock.console.web.access import ADMISSION_SECONDS, admission
from penstock.events.catalogue import LOGGED, Entry, entry
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.subjects import check_name
from penstock.jobs.event_store import event_log
from penstock.views.event_text import happened

MOST_STREAMS, MOST_STREAMS_OF_CALLER = 100, 10
_LAST_SEQUENCE = 2**63
_HEARTBEAT_SECONDS = 15.0
_NOT_BUFFERED = {"X-Accel-Buffering": "no"}


class EventItem(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log.

    Attributes:
        event: its fields, without encoded arguments and results; of one that this version cannot
            read its type alone.
    """

    sequence: int
    noun: str
    key: str
    name: str
    stored_at: datetime
    text: str
    event: dict[str, Any]


def event_item(message: Stored) -> EventItem:
    """A message of the log as it is sent."""
    event = event_log.read_event(message, LOGGED)
    noun, key, name = message.subject.split(".")[-3:]
    return EventItem(
        sequence=message.sequence,
        noun=noun,
        key=key,
        name=name,
        stored_at=message.at,
        text=happened(event) if isinstance(event, Event) else "this version cannot read it",
        event=_fields(event),
    )


async def newest_events(console: Console, noun: str, key: str, limit: int) -> list[EventItem]:
    """Events of the log, the newest first. Raises BadName, BusError."""
    for kind, name in (("noun", noun), ("key", key)):
        if name != "*":
            check_name(kind, name)
    subject = console.subjects.events(noun, key)
    messages = await lookback.newest(console.bus, console.subjects.events_stream, subject, limit)
    ordered = sorted(messages, key=lambda message: -message.sequence)
    return [event_item(message) for message in ordered]


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    places = Places(MOST_STREAMS, MOST_STREAMS_OF_CALLER)

    @read("/events/stream", media_type=EVENT_STREAM)
    async def stream(
        request: Request[Any, Any, Any],
        noun: Annotated[str, QueryParameter(description="Only events of jobs, pools, …")] = "",
        key: Annotated[str, QueryParameter(description="Only of this job, pool, …")] = "",
    ) -> Stream:
        """Events as they are stored, as JSON; `Last-Event-ID` goes on after one."""
        for kind, name in (("noun", noun), ("job", key)):
            if name:
                check_name(kind, name)
        _check_noun(noun)
        leave = places.take(CALLER.get())
        last = request.headers.get("last-event-id", "")
        start: int | str = int(last) + 1 if last.isdecimal() and len(last) < 20 else "new"
        subject = console.subjects.events(noun or "*", key or "*")
        messages = console.bus.follow(console.subjects.events_stream, [subject], start)
        sent = _sent(messages, leave, admission(request.scope))
        weakref.finalize(sent, leave)  # where its client is gone before the first of it is sent
        return Stream(sent, media_type=EVENT_STREAM, headers=_NOT_BUFFERED)

    @read("/events")
    async def events(
        noun: FromQuery[str] = "", key: FromQuery[str] = "", limit: Limit = DEFAULT_LIMIT
    ) -> Listing[EventItem]:
        """The newest events of the log, the newest first."""
        _check_noun(noun)
        return whole(console, await newest_events(console, noun or "*", key or "*", limit))

    @read("/events/schema")
    async def schema() -> Listing[Entry]:
        """Every kind of event, with its subject and JSON Schema."""
        return whole(console, [entry(kind, console.subjects) for kind in LOGGED])

    @read("/events/{sequence:int}")
    async def one_event(sequence: FromPath[int]) -> EventItem:
        """The event with a sequence."""
        stream, every = console.subjects.events_stream, console.subjects.events()
        is_possible = 0 < sequence < _LAST_SEQUENCE
        message = await console.bus.next(stream, every, sequence) if is_possible else None
        if message is None or message.sequence != sequence:
            raise NotFoundException(f"the log has no event {sequence}, or not any more")
        return event_item(message)

    return stream, events, schema, one_event


def _check_noun(noun: str) -> None:
    """Refuses a noun that no event of the log has. Raises ValidationException."""
    nouns = sorted({kind.noun for kind in LOGGED})
    if noun and noun not in nouns:
        near = get_close_matches(noun, nouns, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        message = f"found {noun[:40]!r}; {hint}known are {', '.join(nouns)}"
        problem = {"key": "noun", "message": message, "source": "query"}
        raise ValidationException(f"no event has such a noun: {message}", extra=[problem])


async def _sent(
    messages: AsyncIterator[Stored], leave: Callable[[], None], is_admitted: Callable[[], bool]
) -> AsyncIterator[bytes]:
    queue: asyncio.Queue[Stored] = asyncio.Queue(maxsize=256)

    async def gather() -> None:
        async for message in messages:
            await queue.put(message)

    gathering = asyncio.create_task(gather())
    try:
        yield b": events follow\n\n"
        beaten_at = monotonic()
        while is_admitted():
            try:
                async with asyncio.timeout(ADMISSION_SECONDS):
                    message = await queue.get()
            except TimeoutError:
                if monotonic() - beaten_at >= _HEARTBEAT_SECONDS:
                    beaten_at = monotonic()
                    yield b": still here\n\n"
                continue
            yield _event(message)
    finally:
        gathering.cancel()
        leave()


def _event(message: Stored) -> bytes:
    data = _fields(event_log.read_event(message, LOGGED))
    name = message.subject.rpartition(".")[2]
    body = msgspec.json.encode(data)
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (message.sequence, name.encode(), body)


def _fields(event: Event | UnknownEvent) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        return {"type": event.type, "unreadable": event.unreadable}
    fields: dict[str, Any] = _without_bytes(msgspec.to_builtins(event, builtin_types=(bytes,)))
    return fields


def _without_bytes(value: Any) -> Any:
    """Without encoded arguments and results, which the scope ``read`` does not include."""
    if isinstance(value, dict):
        return {k: _without_bytes(v) for k, v in value.items() if not isinstance(v, bytes)}
    if isinstance(value, list | tuple):
        return [_without_bytes(item) for item in value if not isinstance(item, bytes)]
    return value
