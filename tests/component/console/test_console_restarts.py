"""A console that is ended soon after each start moves forward all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import dispatched
from tests.component.console.test_console_pace import message

from penstock.bus.protocol import BusUnavailable, Outgoing, Stored
from penstock.config import Settings
from penstock.console.read_models.log_batches import FIRST_AT_ONCE, Pace, batches
from penstock.events.envelope import encode
from penstock.testing.memory.bus import MemoryBus

PATIENCE_SECONDS = 30.0
JOBS = 2 * FIRST_AT_ONCE


async def append(site: Site, numbers: Iterable[int]) -> None:
    for number in numbers:
        event = dispatched(number)
        await site.bus.append(Outgoing(site.subjects.event(event), encode(event)))


async def test_the_first_batch_is_small_and_the_next_ones_grow() -> None:
    async def messages() -> AsyncIterator[Stored]:
        for number in range(20 * FIRST_AT_ONCE):
            yield message(number)

    read = batches(messages(), 8 * FIRST_AT_ONCE, Pace())
    sizes = [len(batch) async for batch, _ in read]
    assert [size // FIRST_AT_ONCE for size in sizes] == [1, 2, 4, 8, 5]


async def test_ended_as_soon_as_it_may_serve_it_has_stored_a_position_further_on(
    settings: Settings, tmp_path: Path
) -> None:
    bus, positions = MemoryBus(), [0]
    while positions[-1] < JOBS:
        site = Site(bus, settings, tmp_path)
        if positions == [0]:
            await append(site, range(JOBS))
        site.start()
        await site.console.projection.has_moved(PATIENCE_SECONDS)
        await site.end_tasks()
        positions.append(site.console.store.current.position)
        site.console.close()
        assert positions[-1] > positions[-2]
    assert len(positions) > 2, "one start read it all, so nothing is shown"


async def test_rows_that_are_made_anew_move_forward_likewise(
    settings: Settings, tmp_path: Path
) -> None:
    bus = MemoryBus()
    site = Site(bus, settings, tmp_path)
    await append(site, range(JOBS))
    site.start()
    assert await site.console.projection.reached(JOBS, PATIENCE_SECONDS)
    await site.end_tasks()
    await site.console.projection.rebuild.begin("a test")
    site.console.close()
    generations, positions = 0, [0]
    while not generations:
        site = Site(bus, settings, tmp_path)
        made = site.console.store.next
        assert made is not None
        site.start()
        await site.console.projection.has_moved(PATIENCE_SECONDS)
        await site.end_tasks()
        generations = site.console.store.generation
        if not generations:
            positions.append(made.position)
            assert positions[-1] > positions[-2]
        site.console.close()
    assert len(positions) > 1, "one start read it all, so nothing is shown"


async def test_without_a_broker_or_new_events_it_serves_soon(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(MemoryBus(), settings, tmp_path)
    site.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await site.console.projection.has_moved(2 * PATIENCE_SECONDS)  # there is nothing to read
    await site.stop()

    async def away(*_: Any) -> Stored:
        raise BusUnavailable("the broker is away")

    monkeypatch.setattr(MemoryBus, "extent", away)
    site = Site(MemoryBus(), settings, tmp_path)
    site.start()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await site.console.projection.has_moved(0.01)
    await site.stop()
