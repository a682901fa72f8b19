"""What of the history is missing is stated, and living jobs are read from what is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import dispatched, get
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing, Stored
from penstock.config import Settings
from penstock.events.envelope import encode
from penstock.events.health import HistoryBegins
from penstock.testing.memory.bus import MemoryBus


async def append(site: Site, *numbers: int) -> None:
    for number in numbers:
        event = dispatched(number)
        await site.bus.append(Outgoing(site.subjects.event(event), encode(event)))


async def test_a_first_start_over_a_shortened_log_says_where_it_begins(
    settings: Settings, tmp_path: Path
) -> None:
    site = Site(MemoryBus(), settings, tmp_path)
    await append(site, 1, 2, 3)
    await site.bus.remove(site.subjects.events_stream, site.subjects.events(), before=3)
    site.start()
    assert await site.console.projection.reached(3, 10)
    assert site.console.standing.gap == "history before event 3 was removed"
    kinds = [one["kind"] for one in (await get(site, "/attention"))["items"]]
    assert "gap" in kinds
    await site.stop()


async def test_events_that_were_removed_unread_are_stated_and_all_rows_are_made_anew(
    settings: Settings, tmp_path: Path
) -> None:
    bus = MemoryBus()
    site = Site(bus, settings, tmp_path)
    await append(site, 1)
    site.start()
    assert await site.console.projection.reached(1, 10)
    await site.stop()

    site = Site(bus, settings, tmp_path)
    await append(site, 2, 3, 4)
    await bus.remove(site.subjects.events_stream, site.subjects.events(), before=4)
    site.start()
    assert await site.console.projection.reached(4, 10)
    removed = "events 2 to 3 were removed before this console read them"
    await eventually(lambda: site.console.standing.gap == removed, 10, "the gap")
    assert [job["id"] for job in (await get(site, "/jobs"))["items"]] == ["job-004"]
    await site.stop()


async def test_events_that_are_removed_unread_while_it_runs_are_stated(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = MemoryBus()
    site = Site(bus, settings, tmp_path)
    await append(site, 1)
    site.start()
    assert await site.console.projection.reached(1, 10)
    await site.stop()

    site, follow = Site(bus, settings, tmp_path), bus.follow
    follows, is_removed = asyncio.Event(), asyncio.Event()

    async def late(stream: str, *place: Any) -> AsyncIterator[Stored]:
        if stream == site.subjects.events_stream:
            follows.set()
            await is_removed.wait()
        async for message in follow(stream, *place):
            yield message

    monkeypatch.setattr(bus, "follow", late)
    site.start()
    await follows.wait()
    await append(site, 2, 3, 4)
    await bus.remove(site.subjects.events_stream, site.subjects.events(), before=4)
    is_removed.set()
    removed = "events 2 to 3 were removed before this console read them"
    await eventually(lambda: site.console.standing.gap == removed, 10, "the gap")
    assert await site.console.projection.reached(4, 10)
    assert [job["id"] for job in (await get(site, "/jobs"))["items"]] == ["job-004"]
    await site.stop()


async def test_a_log_that_was_made_anew_is_read_from_its_beginning(
    settings: Settings, tmp_path: Path
) -> None:
    site = Site(MemoryBus(), settings, tmp_path)
    await append(site, 1, 2, 3)
    site.start()
    assert await site.console.projection.reached(3, 10)
    await site.stop()

    site = Site(MemoryBus(), settings, tmp_path)
    await append(site, 7)
    site.start()
    await eventually(lambda: site.console.standing.gap == "the event log was made anew", 10, "it")
    assert await site.console.projection.reached(1, 10)
    assert [job["id"] for job in (await get(site, "/jobs"))["items"]] == ["job-007"]
    await site.stop()


async def test_single_events_left_of_removed_history_do_not_have_it_read_again_and_again(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.console.read_models.projection.MOST_AT_ONCE", 1)
    site = Site(MemoryBus(), settings, tmp_path)
    await append(site, 1, 2, 3)
    begins = HistoryBegins(sequence=3, since=datetime.now(UTC))
    await site.bus.append(Outgoing(site.subjects.event(begins), encode(begins)))
    await site.bus.remove(site.subjects.events_stream, site.subjects.job("job-002"))
    site.start()
    assert await site.console.projection.reached(4, 10)
    assert site.console.standing.gap == "history before event 3 was removed"
    jobs = [job["id"] for job in (await get(site, "/jobs"))["items"]]
    assert jobs == ["job-003", "job-001"]
    await site.stop()
