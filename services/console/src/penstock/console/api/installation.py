"""The installation below pools: settings, services, streams, and how its health changed."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromQuery

from penstock.bus.protocol import BusError, Extent
from penstock.config import Settings
from penstock.config.reloading import full
from penstock.console.api.endpoint import DEFAULT_LIMIT, Limit, Listing, Routes, read, whole
from penstock.console.api.events import EventItem, newest_events
from penstock.console.parts import Console
from penstock.console.read_models.settings_rows import SettingRow, setting_rows
from penstock.operations import settings_in_force

_STREAMS = (
    *("JOBS", "EVENTS", "SNAPSHOTS", "COMMANDS", "DEAD"),
    *("CHECKPOINTS", "STATE", "KEYS", "LOGS", "CONSOLE"),
)


class SettingsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decisions are made under, without secrets."""

    settings: dict[str, Any]


class SettingItem(msgspec.Struct, frozen=True, kw_only=True):
    """One setting.

    Attributes:
        name: dotted, as in the file.
        value: in force, without secrets.
        is_default: whether it is the one without any file.
        waiting_in: services that take over another value at their next start.
        in_force: each value that a service works with, where it comes from, and when another one
            is adopted.
    """

    name: str
    value: Any
    is_default: bool
    waiting_in: list[str]
    in_force: list[SettingRow]


class StreamItem(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of the broker; ``problem`` says why its extent is not known."""

    stream: str
    extent: Extent | None
    problem: str = ""


class ServiceItem(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a service that runs.

    Attributes:
        refused: why it did not reload its settings; empty where it did.
        waiting: settings that it takes over at its next start.
    """

    service: str
    host: str
    pid: int
    settings_at: datetime
    refused: str
    waiting: tuple[str, ...]


class Connections(msgspec.Struct, frozen=True, kw_only=True):
    """Who is connected to the broker, as far as services report it."""

    is_connected: bool
    services: list[ServiceItem]


def settings_tree(settings: Settings) -> dict[str, Any]:
    """Without secrets, of which the path of an address may be one."""
    return full(settings)


async def connections_now(console: Console) -> Connections:
    """Raises BusError."""
    running = await settings_in_force.services(console.bus, console.subjects)
    items = [
        ServiceItem(
            service=one.service,
            host=one.host,
            pid=one.pid,
            settings_at=one.at,
            refused=one.refused,
            waiting=one.waiting,
        )
        for one in running
    ]
    return Connections(is_connected=console.standing.is_connected, services=items)


async def stream_item(console: Console, name: str) -> StreamItem:
    """One stream; it may be missing, or this console's key may not read it."""
    try:
        extent = await console.readable.read(name, partial(console.bus.extent, name))
        return StreamItem(stream=name, extent=extent)
    except BusError as error:
        return StreamItem(stream=name, extent=None, problem=str(error))


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/settings")
    async def settings() -> SettingsAnswer:
        """The settings that decisions are made under, without secrets."""
        return SettingsAnswer(settings=settings_tree(console.present.settings))

    @read("/settings/explain")
    async def explain(name: FromQuery[str]) -> SettingItem:
        """One setting by its dotted name: its value, and which services do not have it yet."""
        value = _at(settings_tree(console.present.settings), name)
        if value is _MISSING:
            raise NotFoundException(f"there is no setting {name!r}; see /settings")
        running = await settings_in_force.services(console.bus, console.subjects)
        waiting = [one.name for one in running if name in one.waiting]
        is_default = value == _at(settings_tree(Settings()), name)
        rows = setting_rows(running, with_defaults=True)
        return SettingItem(
            name=name,
            value=value,
            is_default=is_default,
            waiting_in=waiting,
            in_force=[row for row in rows if row.name == name],
        )

    @read("/streams")
    async def streams() -> Listing[StreamItem]:
        """Streams of the broker, and how much they hold."""
        names = [console.subjects.stream(name) for name in _STREAMS]
        return whole(console, [await stream_item(console, name) for name in names])

    @read("/connections")
    async def connections() -> Connections:
        """Processes of services that run, and this console's own connection."""
        return await connections_now(console)

    @read("/health/history")
    async def history(limit: Limit = DEFAULT_LIMIT) -> Listing[EventItem]:
        """How the health of the installation changed, the newest first."""
        return whole(console, await newest_events(console, "health", "*", limit))

    return settings, explain, streams, connections, history


_MISSING = object()


def _at(tree: Any, name: str) -> Any:
    for step in name.split("."):
        if not isinstance(tree, dict) or step not in tree:
            return _MISSING
        tree = tree[step]
    return tree
