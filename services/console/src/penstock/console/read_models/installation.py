"""The installation itself: streams, running services with their settings, newest events."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from penstock.bus.protocol import BusError, Stored
from penstock.console.parts import Console
from penstock.events.catalogue import LOGGED
from penstock.events.envelope import Event
from penstock.jobs.event_store import event_log
from penstock.operations.settings_in_force import services
from penstock.views.event_text import happened

_MOST_VALUE_LENGTH = 200


class StreamItem(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of the broker.

    Attributes:
        max_bytes: what it may hold; 0 for no bound of its own.
        last: sequence of the latest message there ever was.
        error: why its extent is not known; empty otherwise.
    """

    name: str
    messages: int = 0
    bytes: int = 0
    max_bytes: int = 0
    last: int = 0
    error: str = ""


class ServiceItem(msgspec.Struct, frozen=True, kw_only=True):
    """A process that runs.

    Attributes:
        settings: those that are not at their defaults, as (name, value).
        refused: why its settings were not reloaded last; empty otherwise.
        waiting: settings that it takes over at its next start.
    """

    service: str
    host: str
    pid: int
    at: datetime
    settings: tuple[tuple[str, str], ...]
    refused: str
    waiting: tuple[str, ...]


class LoggedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the log as a line; ``at`` is None where this version cannot read it."""

    sequence: int
    type: str
    noun: str
    key: str
    at: datetime | None
    text: str


async def streams(console: Console) -> list[StreamItem]:
    """Those that the console may read, with how much they hold."""
    subjects = console.subjects
    names = (
        *(subjects.events_stream, subjects.snapshots_stream),
        *(subjects.state_stream, subjects.console_stream),
    )
    return list(await asyncio.gather(*(_stream(console, name) for name in names)))


async def _stream(console: Console, name: str) -> StreamItem:
    try:
        extent = await console.readable.read(name, partial(console.bus.extent, name))
    except BusError as error:
        return StreamItem(name=name, error=str(error))
    return StreamItem(
        name=name,
        messages=extent.messages,
        bytes=extent.bytes,
        max_bytes=extent.max_bytes,
        last=extent.last,
    )


async def running_services(console: Console) -> list[ServiceItem]:
    """Every process that publishes its settings. Raises BusError."""
    return [
        ServiceItem(
            service=record.service,
            host=record.host,
            pid=record.pid,
            at=record.at,
            settings=tuple(_flat(record.settings or {})),
            refused=record.refused,
            waiting=record.waiting,
        )
        for record in await services(console.bus, console.subjects)
    ]


async def newest_events(console: Console, noun: str, limit: int) -> list[LoggedEvent]:
    """The end of the log, newest first; of a noun, those among its last events.

    Raises:
        BusError: the log cannot be read.
    """
    stream = console.subjects.events_stream
    end = (await console.bus.extent(stream)).last
    start = max(1, end - 20 * limit if noun else end - limit + 1)
    if end < 1:
        return []
    subject = console.subjects.events(noun or "*")
    stored = await console.bus.history(stream, subject, end - start + 1, start)
    return [_line(message) for message in stored[::-1][:limit]]


def _line(stored: Stored) -> LoggedEvent:
    _, noun, key, name = stored.subject.rsplit(".", 3)
    event = event_log.read_event(stored, LOGGED)
    text = happened(event) if isinstance(event, Event) else "this version cannot read it"
    return LoggedEvent(
        sequence=stored.sequence, type=name, noun=noun, key=key, at=stored.at, text=text
    )


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            shown = msgspec.json.encode(value).decode()
            yield f"{prefix}{name}", shown[:_MOST_VALUE_LENGTH]
