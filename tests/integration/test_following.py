"""A follower sees every message, in order and once, whatever becomes of one under way to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.contract.setting import bodies, take
from tests.integration.partition import Wire
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.bus.pull import Inbox
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker


@pytest.fixture
async def wire(broker: Broker) -> AsyncIterator[Wire]:
    wire = await Wire(broker.url).open()
    yield wire
    await wire.close()


@pytest.fixture
async def far(wire: Wire, settings: MakeSettings) -> AsyncIterator[NatsBus]:
    """A client behind the wire."""
    bus = await connect(settings(nats={"url": wire.url}))
    yield bus
    wire.heal()
    await bus.close()


@pytest.fixture
async def bus(settings: MakeSettings) -> AsyncIterator[NatsBus]:
    bus = await connect(settings())
    yield bus
    await bus.close()


async def test_what_was_under_way_on_a_connection_that_broke_is_followed(
    wire: Wire, far: NatsBus, bus: NatsBus, settings: MakeSettings
) -> None:
    subjects = Subjects(settings.prefix)
    subject = subjects.events("job", "a", "E")
    following: Any = far.follow(subjects.events_stream, [subject], "all")
    async with aclosing(following) as messages:
        await bus.append(Outgoing(subject, b"0"))
        assert bodies(await take(messages, 1)) == [b"0"]
        waiting = asyncio.create_task(take(messages, 2))
        await eventually(lambda: _is(bus, subjects, waiting=1), 5.0, "a request that waits")

        # when the broker has sent one to the follower, and the connection ends with it
        wire.cut()
        await bus.append(Outgoing(subject, b"1"))
        await eventually(lambda: _is(bus, subjects, delivered=2), 5.0, "one under way")
        await wire.drop()
        wire.heal()
        await bus.append(Outgoing(subject, b"2"))

        # then it comes all the same
        assert bodies(await waiting) == [b"1", b"2"]


async def test_a_delivery_that_never_came_is_asked_for_again(
    far: NatsBus, bus: NatsBus, settings: MakeSettings
) -> None:
    subjects = Subjects(settings.prefix)
    subject = subjects.events("job", "a", "E")
    following: Any = far.follow(subjects.events_stream, [subject], "all")
    async with aclosing(following) as messages:
        await bus.append(Outgoing(subject, b"0"))
        assert bodies(await take(messages, 1)) == [b"0"]

        # when the broker gives one to somebody else in the follower's name
        await bus.append(Outgoing(subject, b"1"))
        other = _beside(bus, await _follower(bus, subjects))
        assert [body for _, _, body, _ in await other.take(1, 5.0)] == [b"1"]
        await bus.append(Outgoing(subject, b"2"))

        # then the follower sees it all the same, in its place
        assert bodies(await take(messages, 2)) == [b"1", b"2"]


async def test_what_comes_when_nobody_waits_any_more_is_noticed(
    wire: Wire, far: NatsBus, bus: NatsBus, settings: MakeSettings
) -> None:
    subjects = Subjects(settings.prefix)
    subject = subjects.events("job", "a", "E")
    following: Any = far.follow(subjects.events_stream, [subject], "all")
    async with aclosing(following) as messages:
        await bus.append(Outgoing(subject, b"0"))
        await take(messages, 1)
        inbox = _beside(far, await _follower(bus, subjects))
        taking = asyncio.create_task(inbox.take(1, 1.0))
        await eventually(lambda: _is(bus, subjects, waiting=1), 5.0, "a request that waits")
        wire.cut()
        await bus.append(Outgoing(subject, b"1"))
        assert await taking == []
        assert not inbox.missed

        # when the answer comes after all
        wire.heal()
        await eventually(lambda: inbox.missed, 5.0, "a late answer")


def _beside(bus: NatsBus, follower: dict[str, Any]) -> Inbox:
    """Another one that takes what is the follower's."""
    verb = f"$JS.API.CONSUMER.MSG.NEXT.{follower['stream_name']}.{follower['name']}"
    return Inbox(bus._client, verb, lambda _: None)


async def _is(bus: NatsBus, subjects: Subjects, waiting: int = 0, delivered: int = 0) -> bool:
    info = await _follower(bus, subjects)
    return info["num_waiting"] >= waiting and info["delivered"]["consumer_seq"] >= delivered


async def _follower(bus: NatsBus, subjects: Subjects) -> dict[str, Any]:
    """The event log's only one."""
    page = await bus._api(f"CONSUMER.LIST.{subjects.events_stream}", {"offset": 0})
    [info] = page["consumers"]
    found: dict[str, Any] = info
    return found
