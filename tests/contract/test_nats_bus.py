"""NATS keeps the contract, and what only a real broker can do to us: stop, freeze, come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from tests.contract.bus_contract import BusContract
from tests.contract.setting import Examined, bodies, drain, numbered, take
from tests.contract.signal_contract import Heard
from tests.contract.storing_contract import FollowingContract
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Bus, BusUnavailable, Outgoing
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker
from penstock.runtime.paths import free_port


@pytest.fixture
async def examined(settings: MakeSettings) -> AsyncIterator[Examined]:
    clients: list[Bus] = []

    async def client(claim_seconds: float) -> Bus:
        found = settings(nats={"request_timeout_seconds": 1.0})
        jobs = msgspec.structs.replace(found.jobs, claim_seconds=claim_seconds)
        clients.append(await connect(msgspec.structs.replace(found, jobs=jobs)))
        return clients[-1]

    yield Examined(Subjects(settings.prefix), client)
    for bus in clients:
        await bus.close()


class TestNatsBus(BusContract):
    pass


class TestFollowingWithoutConsumers(FollowingContract):
    """As with a key that may make none."""

    @pytest.fixture
    async def bus(self, examined: Examined) -> Bus:
        bus = await examined.client(30.0)
        assert isinstance(bus, NatsBus)
        bus.reader.makes_consumers = False
        return bus

    async def test_the_last_of_one_subject_comes_first_then_what_is_new(
        self, bus: Bus, examined: Examined
    ) -> None:
        await bus.append_many(numbered(examined.event("a"), 3))
        stream: Any = bus.follow(examined.subjects.events_stream, [examined.event("a")], "last")
        async with aclosing(stream) as messages:
            assert bodies(await take(messages, 1)) == [b"2"]
            await bus.append_many(numbered(examined.event("a"), 2))
            assert bodies(await take(messages, 2)) == [b"0", b"1"]

    async def test_the_last_of_many_subjects_come_first_then_what_is_new(
        self, bus: Bus, examined: Examined
    ) -> None:
        jobs = [f"job{number}" for number in range(150)]
        events = [
            Outgoing(examined.event(job), f"{job} {n}".encode()) for n in "ab" for job in jobs
        ]
        await bus.append_many(events)
        await bus.append(Outgoing(examined.event(jobs[0]), b"latest"))
        every = examined.subjects.events()
        stream: Any = bus.follow(examined.subjects.events_stream, [every], "last")
        async with aclosing(stream) as messages:
            first = bodies(await take(messages, len(jobs)))
            assert first == [*(f"{job} b".encode() for job in jobs[1:]), b"latest"]
            await bus.append_many(numbered(examined.event("job7"), 2))
            assert bodies(await take(messages, 2)) == [b"0", b"1"]

    async def test_the_last_of_subjects_that_hold_nothing_is_what_comes(
        self, bus: Bus, examined: Examined
    ) -> None:
        await bus.append(Outgoing(examined.event("a"), b"other"))
        stream: Any = bus.follow(examined.subjects.events_stream, [examined.event("b")], "last")
        async with aclosing(stream) as messages:
            coming = asyncio.ensure_future(take(messages, 1))
            await bus.append_many(numbered(examined.event("b"), 1))
            assert bodies(await coming) == [b"0"]

    async def test_nothing_is_made_on_the_broker(self, bus: Bus, examined: Examined) -> None:
        stream = examined.subjects.events_stream
        await bus.append_many(numbered(examined.event("a"), 3))
        following: Any = bus.follow(stream, [examined.event("a")], "all")
        async with aclosing(following) as messages:
            await take(messages, 3)
            assert isinstance(bus, NatsBus)
            assert (await bus._api(f"CONSUMER.LIST.{stream}"))["total"] == 0


class TestBrokerTrouble:
    async def test_follow_goes_on_through_a_restart(
        self, broker: Broker, bus: Bus, examined: Examined
    ) -> None:
        subject = examined.event("a")
        stream: Any = bus.follow(examined.subjects.events_stream, [subject], "all")
        async with aclosing(stream) as messages:
            await bus.append_many(numbered(subject, 3))
            assert bodies(await take(messages, 3)) == [b"0", b"1", b"2"]
            broker.restart()
            await eventually(lambda: _stored(bus, Outgoing(subject, b"after")), within=10)
            assert (await take(messages, 1))[0].body == b"after"

    async def test_a_stream_that_nobody_answers_for_is_worth_asking_again(
        self, bus: Bus, examined: Examined
    ) -> None:
        """A broker that ends stops its streams first, while clients are still connected."""
        assert isinstance(bus, NatsBus)
        stream, subject = examined.subjects.events_stream, examined.event("a")
        assert await bus.append(Outgoing(subject, b"1"))
        await bus._api(f"STREAM.DELETE.{stream}")
        for asking in (
            bus.append(Outgoing(subject, b"2")),
            bus.append_atomic([Outgoing(subject, b"2"), Outgoing(subject, b"3")]),
            bus.history(stream, subject),
        ):
            with pytest.raises(BusUnavailable):
                await asking

    async def test_pullers_and_listeners_go_on_through_a_restart(
        self, broker: Broker, bus: Bus, examined: Examined
    ) -> None:
        heard = Heard()
        await bus.listen(examined.subjects.queue("*"), heard.plain)
        puller = bus.puller("q")
        assert await puller.fetch(1, 0) == []
        waiting = asyncio.create_task(drain(puller, 1))
        await asyncio.sleep(0)
        broker.restart()
        job = Outgoing(examined.subjects.queue("q"), b"x", {"Nats-Msg-Id": "once"})
        await eventually(lambda: _stored(bus, job), within=10)
        assert bodies(await waiting) == [b"x"]
        assert heard.all == [(examined.subjects.queue("q"), b"x")]

    async def test_what_was_stored_survives_a_kill(
        self, broker: Broker, bus: Bus, examined: Examined
    ) -> None:
        await bus.append_many(numbered(examined.subjects.queue("q"), 100))
        await bus.append(examined.schedule("later", 1.0))
        [held] = await bus.puller("q").fetch(1, 1.0)
        broker.restart()
        await eventually(lambda: _answers(bus), within=10)
        await bus.ack([held])
        wanted, puller = {*(b"%d" % number for number in range(1, 100)), b"later"}, bus.puller("q")

        async def all_came() -> bool:  # the broker may have forgotten the claim: at least once
            wanted.difference_update(bodies(await puller.fetch(100, 0.2)))
            return not wanted

        await eventually(all_came, within=10)

    async def test_a_frozen_broker_is_unavailable_not_silent(
        self, broker: Broker, bus: Bus, examined: Examined
    ) -> None:
        broker.freeze()
        with pytest.raises(BusUnavailable, match="answer"):
            await bus.append(Outgoing(examined.event("a"), b"1"))
        with pytest.raises(BusUnavailable):
            await bus.last(examined.subjects.events_stream, examined.event("a"))
        with pytest.raises(BusUnavailable):
            await bus.history(examined.subjects.events_stream, examined.event("a"))
        broker.thaw()
        await eventually(lambda: _stored(bus, Outgoing(examined.event("b"), b"2")), within=10)

    async def test_nobody_there_is_a_clear_error(self, settings: MakeSettings) -> None:
        nowhere = f"nats://127.0.0.1:{free_port()}"
        with pytest.raises(BusUnavailable, match=nowhere):
            await connect(settings(nats={"url": nowhere, "connect_timeout_seconds": 0.3}))


async def _stored(bus: Bus, message: Outgoing) -> bool:
    try:
        return bool(await bus.append(message))
    except BusUnavailable:
        return False


async def _answers(bus: Bus) -> bool:
    try:
        return bool(await bus.depths())
    except BusUnavailable:
        return False
