"""The in-memory bus keeps the contract; and its clock can be moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.contract.bus_contract import BusContract
from tests.contract.setting import Examined, bodies

from penstock.bus.protocol import Bus, BusUnavailable, Outgoing
from penstock.config.settings import Jobs, Settings
from penstock.events.subjects import Subjects
from penstock.testing.memory.bus import MemoryBus


@pytest.fixture
async def examined() -> AsyncIterator[Examined]:
    first: list[MemoryBus] = []

    async def connect(claim_seconds: float) -> Bus:
        if not first:
            jobs = Jobs(claim_seconds=claim_seconds)
            first.append(MemoryBus(settings=Settings(prefix="test", jobs=jobs)))
        return first[0].client()

    yield Examined(Subjects("test"), connect)


class TestMemoryBus(BusContract):
    pass


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


async def test_claims_and_schedules_follow_an_injected_clock() -> None:
    clock = Clock()
    bus = MemoryBus(now=clock)
    await bus.append(Outgoing(bus.subjects.queue("q"), b"now"))
    at = {
        "Nats-Schedule": "@at 2027-01-15T09:00:00Z",
        "Nats-Schedule-Target": bus.subjects.queue("q"),
    }
    await bus.append(Outgoing(bus.subjects.schedule("q", "a"), b"later", at))
    puller = bus.puller("q")
    assert bodies(await puller.fetch(5, 0)) == [b"now"]
    assert await puller.fetch(5, 0) == []

    clock.seconds += 4.1  # the claim is 4 s
    bus.tick()
    assert bodies(await puller.fetch(5, 0)) == [b"now"]
    clock.seconds += 3600
    assert bodies(await puller.fetch(5, 0)) == [b"now", b"later"]


async def test_a_closed_client_says_so_and_leaves_the_others_alone() -> None:
    bus = MemoryBus()
    other = bus.client()
    await other.close()
    with pytest.raises(BusUnavailable, match="closed"):
        await other.append(Outgoing(bus.subjects.command("h"), b""))
    await bus.append(Outgoing(bus.subjects.command("h"), b""))
