"""Reading streams from their end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.bus import lookback
from penstock.bus.protocol import Outgoing
from penstock.bus.since import first_since
from penstock.testing.memory.bus import MemoryBus

STREAM, ANY = "EVENTS", "penstock.events.pool.*.*"


async def bus_with(*keys: str) -> MemoryBus:
    bus = MemoryBus()
    for number, key in enumerate(keys):
        await bus.append(Outgoing(f"penstock.events.pool.{key}.E", str(number).encode()))
    return bus


def bodies(messages) -> list[str]:
    return [stored.body.decode() for stored in messages]


async def test_newest_are_the_last_ones_in_order() -> None:
    bus = await bus_with("a", "b", "a", "b", "a")
    assert bodies(await lookback.newest(bus, STREAM, ANY, 3)) == ["2", "3", "4"]
    only_b = "penstock.events.pool.b.*"
    assert bodies(await lookback.newest(bus, STREAM, only_b, 10)) == ["1", "3"]


async def test_newest_looks_further_back_until_it_has_enough(monkeypatch) -> None:
    monkeypatch.setattr(lookback, "FIRST_SPAN", 2)
    bus = await bus_with("a", *["b"] * 9, "a")
    only_a = "penstock.events.pool.a.*"
    assert bodies(await lookback.newest(bus, STREAM, only_a, 2)) == ["0", "10"]


async def test_an_empty_stream_has_nothing() -> None:
    bus = MemoryBus()
    assert await lookback.newest(bus, STREAM, ANY, 3) == []
    assert await lookback.latest(bus, STREAM, ANY) == []


async def test_latest_is_one_a_subject() -> None:
    bus = await bus_with("a", "b", "a", "c")
    assert sorted(bodies(await lookback.latest(bus, STREAM, ANY))) == ["1", "2", "3"]


@pytest.mark.parametrize("sought", [0, 1, 3, 5])
async def test_since_finds_the_first_at_or_after_a_moment(sought) -> None:
    bus = await bus_with("a", "b", "a", "b", "a", "a")
    everything = await bus.history(STREAM, ANY)
    found = await first_since(bus, STREAM, ANY, everything[sought].at)
    assert everything[0].sequence <= found <= everything[sought].sequence
    assert await first_since(bus, STREAM, ANY, everything[-1].at + timedelta(hours=1)) == 7
