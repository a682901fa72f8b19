"""Channels of alerts; their addresses and secrets are written, never read."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from litestar import Request
from litestar.exceptions import NotFoundException, ValidationException
from litestar.params import FromPath, JSONBody

from penstock.console.alerts.addresses import AddressRefused, check_address
from penstock.console.alerts.book import MOST_CHANNELS
from penstock.console.alerts.webhook import SendFailed
from penstock.console.api.alert_acts import act, actor, note
from penstock.console.api.alert_rules import send_test
from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.core.alerts.channels import BadChannel, Channel, Secrets, check
from penstock.console.core.alerts.rules import Identifier, Name
from penstock.console.core.times import instant
from penstock.console.parts import Console
from penstock.console.web.conflict import Conflict
from penstock.console.web.entity_tags import check_unchanged, tag
from penstock.events.alerting import AlertChannelRemoved, AlertChannelSaved
from penstock.views import wording

_RESOLVING_SECONDS = 2.0


class ChannelInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A channel as it is entered.

    Attributes:
        url: of the webhook, or an Apprise address such as ``mailtos://…``; empty keeps the former.
        key: that a webhook's messages are signed with; empty keeps the former.
        fallback: channel that is given what this one does not take.
    """

    id: Identifier
    name: Name
    kind: Literal["webhook", "log", "apprise"]
    url: str = ""
    key: str = ""
    fallback: str = ""
    is_enabled: bool = True


class ChannelShown(msgspec.Struct, frozen=True, kw_only=True):
    """A channel without its secrets.

    Attributes:
        warning: what its receiver lacks, as a sentence; empty for nothing.
    """

    id: str
    name: str
    kind: str
    scheme: str
    host: str
    fallback: str
    is_enabled: bool
    version: int
    warning: str = ""


class HeartbeatShown(msgspec.Struct, frozen=True, kw_only=True):
    """The sign of life that is sent outside.

    Attributes:
        host: that it is sent to; empty where none is (`console.heartbeat_url`).
        accepted_at: when the last one was taken; None before the first.
        error: why the last one was not taken; empty where it was.
        summary: all of it as a sentence.
    """

    host: str
    every_seconds: float
    accepted_at: datetime | None
    error: str
    summary: str


def heartbeat_shown(console: Console) -> HeartbeatShown:
    """The heartbeat as the leading console stored it last."""
    host, every = console.alerts.heartbeat.host, console.alerts.heartbeat.every_seconds
    last = console.alerts.record.heartbeat
    accepted_at = instant(round(last.accepted_at * 1e6)) if last.accepted_at else None
    taken = f"the last one was taken at {accepted_at:%H:%M:%S} UTC" if accepted_at else "none yet"
    if not host:
        summary = "None is sent: no alarm is raised outside when all consoles or the broker end."
    elif last.error:
        summary = f"{host} does not take it: {last.error}; {taken}."
    else:
        summary = f"Sent to {host} every {wording.seconds(every)}; {taken}."
    return HeartbeatShown(
        host=host, every_seconds=every, accepted_at=accepted_at, error=last.error, summary=summary
    )


def shown(console: Console, channel: Channel) -> ChannelShown:
    """A channel as it may be read."""
    return ChannelShown(
        id=channel.id,
        name=channel.name,
        kind=channel.kind,
        scheme=channel.scheme,
        host=channel.host,
        fallback=channel.fallback,
        is_enabled=channel.is_enabled,
        version=console.alerts.book.versions.get(("channel", channel.id), 0),
        warning=_warning(console, channel),
    )


def _warning(console: Console, channel: Channel) -> str:
    try:
        is_signed = channel.kind != "webhook" or console.alerts.sealing.open(channel).key
    except SendFailed as error:
        return f"{str(error)[:1].upper()}{str(error)[1:]}."
    return "" if is_signed else "Its messages are not signed: it has no key."


def all_shown(console: Console) -> list[ChannelShown]:
    """All channels, by name."""
    channels = sorted(console.alerts.book.channels.values(), key=lambda one: one.name)
    return [shown(console, channel) for channel in channels]


async def save_channel(
    console: Console, entered: ChannelInput, request: Request[Any, Any, Any]
) -> ChannelShown:
    """Stores a channel with its secrets sealed.

    Raises:
        BadChannel: its address is not one that messages may be sent to.
        ValidationException: its fallback is not there, or there are too many.
    """
    alerts = console.alerts
    before = alerts.book.channels.get(entered.id)
    if before is None and len(alerts.book.channels) >= MOST_CHANNELS:
        raise ValidationException(f"there are {MOST_CHANNELS} channels already")
    if entered.fallback and (
        entered.fallback == entered.id or entered.fallback not in alerts.book.channels
    ):
        raise ValidationException(f"fallback: there is no other channel {entered.fallback[:64]!r}")
    former = before if before is not None and before.kind == entered.kind else None
    if former is not None and not (entered.url or entered.key):
        scheme, host, sealed = former.scheme, former.host, former.sealed
    else:
        kept = alerts.sealing.open(former) if former is not None else Secrets()
        if kept.url and entered.url and kept.url != entered.url:
            kept = Secrets(key=kept.key if not entered.key and _same_host(kept, entered) else "")
        secrets = Secrets(url=entered.url or kept.url, key=entered.key or kept.key)
        scheme, host = check(entered.kind, secrets)
        if entered.kind == "webhook":
            await _check_reachable(host, console.settings.console.alert_networks)
        sealed = alerts.sealing.seal(entered.id, secrets)
    channel = Channel(
        id=entered.id,
        name=entered.name,
        kind=entered.kind,
        scheme=scheme,
        host=host,
        sealed=sealed,
        fallback=entered.fallback,
        is_enabled=entered.is_enabled,
    )
    definition = msgspec.to_builtins(channel)
    former_shown = shown(console, before) if before else None
    note(request, f"channel:{channel.id}", former_shown, shown(console, channel))
    saved = AlertChannelSaved(name=channel.id, by=actor(request), definition=definition)
    await alerts.book.store(saved)
    return shown(console, channel)


async def _check_reachable(host: str, allowed: Sequence[str]) -> None:
    """Refuses an address that no message is sent to; checked again with each message.

    A name that is not resolved now is taken.

    Raises:
        BadChannel: it is of this machine or a private network.
    """
    loop, addresses = asyncio.get_running_loop(), list[Any]()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(_RESOLVING_SECONDS):
            name = urlsplit(f"//{host}").hostname or ""
            addresses = await loop.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    try:
        for one in addresses:
            check_address(str(one[4][0]), allowed)
    except AddressRefused as error:
        raise BadChannel(f"url: {error}") from None


def _same_host(kept: Secrets, entered: ChannelInput) -> bool:
    """A key that was entered for one receiver is not handed to another."""
    return check(entered.kind, kept)[1] == check(entered.kind, Secrets(url=entered.url))[1]


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    book = console.alerts.book

    def check_there(name: str) -> None:
        if name not in book.channels:
            raise NotFoundException(f"there is no channel {name[:64]!r}")

    @read("/alerts/channels")
    async def channels() -> Listing[ChannelShown]:
        """All channels, without their secrets."""
        return whole(console, all_shown(console))

    @act("POST", "/alerts/channels", "alert.channel.create")
    async def create(data: JSONBody[ChannelInput], request: Request[Any, Any, Any]) -> ChannelShown:
        """Makes a channel; its address and key are sealed, and never shown again."""
        if data.id in book.channels:
            raise Conflict(f"there is a channel {data.id!r} already; use PUT to change it")
        return await save_channel(console, data, request)

    @act("PUT", "/alerts/channels/{channel_id:str}", "alert.channel.change")
    async def change(
        channel_id: FromPath[str], data: JSONBody[ChannelInput], request: Request[Any, Any, Any]
    ) -> ChannelShown:
        """Changes a channel; without an address or a key the former ones stay."""
        check_there(channel_id)
        if data.id != channel_id:
            raise ValidationException(f"found the id {data.id!r}, expected {channel_id!r}")
        check_unchanged(request.headers, tag(book.versions.get(("channel", channel_id), 0)))
        return await save_channel(console, data, request)

    @act("DELETE", "/alerts/channels/{channel_id:str}", "alert.channel.remove", status_code=204)
    async def remove(channel_id: FromPath[str], request: Request[Any, Any, Any]) -> None:
        """Removes a channel that no rule names."""
        check_there(channel_id)
        check_unchanged(request.headers, tag(book.versions.get(("channel", channel_id), 0)))
        users = [
            rule.id
            for rule in book.rules.values()
            if any(channel_id in level.channels for level in rule.levels)
        ]
        if users:
            raise Conflict(f"the rule {users[0]!r} sends to it; change that first")
        note(request, f"channel:{channel_id}", shown(console, book.channels[channel_id]), None)
        await book.store(AlertChannelRemoved(name=channel_id, by=actor(request)))

    @act("POST", "/alerts/channels/{channel_id:str}/test", "alert.channel.test", status_code=204)
    async def test(channel_id: FromPath[str]) -> None:
        """Sends a message that says it is a test."""
        check_there(channel_id)
        await send_test(console, channel_id, "Test")

    @read("/alerts/heartbeat")
    async def heartbeat() -> HeartbeatShown:
        """The sign of life that is sent outside, and what came of the last one."""
        return heartbeat_shown(console)

    return channels, create, change, remove, test, heartbeat
