"""How long events are gathered: briefly while something reads the rows, else longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import dispatched, get
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing, Stored
from penstock.console.read_models.log_batches import Pace, batches
from penstock.events.envelope import encode

AN_HOUR = 3_600.0
MOST = 50


def message(number: int, behind: int | None = None) -> Stored:
    at = datetime.fromtimestamp(number, UTC)
    return Stored(subject="s", sequence=number, at=at, body=b"", behind=behind)


class Source:
    """Messages that come when the test says so."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Stored] = asyncio.Queue()

    async def messages(self) -> AsyncIterator[Stored]:
        while True:
            yield await self.queue.get()

    def put(self, count: int, behind: int | None = None) -> None:
        for number in range(count):
            self.queue.put_nowait(message(number, behind))


@contextmanager
def reading(source: Source, pace: Pace) -> Iterator[list[int]]:
    """The sizes of the batches so far."""
    sizes: list[int] = []

    async def read() -> None:
        async for batch, _ in batches(source.messages(), MOST, pace):
            sizes.append(len(batch))

    task = asyncio.create_task(read())
    try:
        yield sizes
    finally:
        task.cancel()


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.console.read_models.log_batches.UNWATCHED_SECONDS", AN_HOUR)


@pytest.mark.usefixtures("unwatched")
async def test_what_has_come_is_stored_as_soon_as_something_reads() -> None:
    source, pace = Source(), Pace(lambda: False)
    with reading(source, pace) as sizes:
        source.put(1)
        await eventually(lambda: sizes == [1], 10, "the first message at once")
        source.put(3)
        await eventually(source.queue.empty, 10, "the next ones are gathered")
        assert sizes == [1]
        pace.watch()
        await eventually(lambda: sizes == [1, 3], 10, "what was gathered")
        source.put(2)
        await eventually(lambda: sizes == [1, 3, 2], 10, "what comes while it is read")


@pytest.mark.usefixtures("unwatched")
async def test_the_broker_is_asked_for_more_no_sooner_than_that_is_stored() -> None:
    """Else each few messages are a request: as many as the platform stores events at a time."""
    source, pace = Source(), Pace(lambda: False)
    with reading(source, pace) as sizes:
        source.put(2, behind=0)
        await eventually(lambda: sizes == [1], 10, "the first message at once")
        assert source.queue.qsize() == 1
        pace.watch()
        await eventually(lambda: sum(sizes) == 2, 10, "the next one")


@pytest.mark.usefixtures("unwatched")
async def test_a_full_batch_does_not_wait() -> None:
    source = Source()
    with reading(source, Pace(lambda: False)) as sizes:
        source.put(1)
        await eventually(lambda: sizes == [1], 10, "the first message at once")
        source.put(MOST)
        await eventually(lambda: sum(sizes) == 1 + MOST, 10, "a full batch")


@pytest.mark.usefixtures("unwatched")
async def test_a_request_shows_what_was_stored_before_it_soon(site: Site) -> None:
    await site.store(dispatched(1))
    await get(site, "/jobs")
    for number in (2, 3):
        event = dispatched(number)
        await site.bus.append(Outgoing(site.subjects.event(event), encode(event)))
        await eventually(lambda: site.console.standing.position == number, 10, "it")  # noqa: B023
