"""A log that is full is shortened, whatever happened to the pass before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from tests.buses import both
from tests.integration.turning import LIMIT_BYTES, QUEUE, Stage
from tests.making import MakeSettings

from penstock.bus.protocol import Bus, StreamFull
from penstock.bus.streams import dispatch_limit
from penstock.jobs import Client, job
from penstock.orchestrator.app import Orchestrator
from penstock.orchestrator.retention.history import History
from penstock.runtime.service import Service


@job(queue=QUEUE, name="turnover-full.burst")
def burst(text: str) -> None: ...


@pytest.fixture(params=both("nats"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    async with Stage(request.param, settings) as stage:
        yield stage


class Busy:
    """A bus on which others store as much as they may whenever messages have left the log."""

    def __init__(self, bus: Bus, fill: Callable[[], Awaitable[None]]) -> None:
        self._bus, self._fill, self.is_busy = bus, fill, True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    async def remove(self, stream: str, subject: str, before: int = 0) -> None:
        await self._bus.remove(stream, subject, before)
        if self.is_busy:
            await self._fill()


def _history(stage: Stage, bus: Bus) -> History:
    """As an orchestrator has it, which does not run."""
    return Orchestrator(Service("orchestrator", stage.settings, bus)).history


class _Client:
    """One of several programs that dispatch as fast as they can, until jobs are refused."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def flood(self, one_by_one: bool) -> None:
        bus = await self._stage.connect()
        client = Client.over(bus, self._stage.settings)
        with suppress(StreamFull):
            while True:
                if one_by_one:
                    calls = (client.dispatch(burst(text="x" * 400)) for _ in range(200))
                    await asyncio.gather(*calls)
                else:
                    await client.dispatch_many([burst(text="x" * 400)] * 1_000)
        await bus.close()


@pytest.mark.parametrize("one_by_one", [False, True])
async def test_many_clients_together_leave_the_reserve_to_the_ends_of_jobs(
    stage: Stage, one_by_one: bool
) -> None:
    clients = [_Client(stage) for _ in range(8)]
    await asyncio.gather(*(client.flood(one_by_one) for client in clients))
    extent = await stage.bus.extent(stage.subjects.events_stream)
    limit = dispatch_limit(extent.max_bytes)
    assert 0.9 * limit < extent.bytes < 1.05 * limit


async def test_jobs_are_refused_at_the_same_size_while_the_log_is_widened(stage: Stage) -> None:
    """What the orchestrator adds is for carrying what lives; jobs would fill it again and again."""
    await _fill(stage)
    await stage.bus.adapt_streams(16_000_000)
    with pytest.raises(StreamFull):
        await stage.client.dispatch(burst(text="x"))
    await stage.bus.adapt_streams()
    extent = await stage.bus.extent(stage.subjects.events_stream)
    assert extent.max_bytes == extent.configured_bytes


async def _fill(stage: Stage) -> None:
    """Until jobs are refused."""

    async def is_full() -> bool:
        extent = await stage.bus.extent(stage.subjects.events_stream)
        return extent.bytes > dispatch_limit(extent.max_bytes)

    while not await is_full():
        await stage.traffic(50_000)


async def test_shortening_that_lost_its_lease_goes_on_though_no_jobs_are_accepted(
    stage: Stage,
) -> None:
    """A pass that is cut short says nothing of how much lives: the log would stay full for good."""
    await _fill(stage)
    bus = await stage.connect()
    history = _history(stage, bus)
    assert not await history.shorten(lambda: False)
    assert await history.shorten()
    await bus.close()


async def test_a_log_that_is_filled_while_it_is_shortened_is_shortened_again(stage: Stage) -> None:
    """What others stored during a pass is not what lives."""
    await _fill(stage)
    bus = await stage.connect()
    busy = Busy(bus, lambda: _fill(stage))
    history = _history(stage, cast("Bus", busy))
    assert await history.shorten()
    busy.is_busy = False
    assert await history.shorten()
    await bus.close()


async def test_what_others_store_while_history_is_shortened_is_not_taken_for_living_jobs(
    stage: Stage,
) -> None:
    """Given a pass during which others store as much as it removes; then health is told how much
    the jobs take that have not ended, not how much is in the log."""
    job_id = await stage.client.dispatch(burst(text="x"), delay=3600)
    await stage.traffic(LIMIT_BYTES)
    bus = await stage.connect()
    history = _history(stage, cast("Bus", Busy(bus, lambda: stage.traffic(LIMIT_BYTES // 2))))
    assert await history.shorten()
    extent = await bus.extent(stage.subjects.events_stream)
    facts = history.book.facts(bus.now(), extent.bytes, 0.0)
    assert extent.bytes > LIMIT_BYTES
    assert facts.living_bytes is not None and facts.living_bytes < LIMIT_BYTES / 100
    assert (await stage.client.job(job_id)).state == "scheduled"
    await bus.close()
