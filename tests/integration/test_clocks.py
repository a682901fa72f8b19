"""Given a host whose clock is wrong, then its worker judges jobs by the broker's clock.

The worker runs in this process, whose clock is set; the client came before, and is in time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta, tzinfo
from typing import Any

import pytest
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.config import Settings
from penstock.events import envelope
from penstock.events.job import JobCancelled, JobRetrying
from penstock.jobs import Client, Context, job
from penstock.jobs.client import JobView
from penstock.jobs.lifecycle import State
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

HOUR = 3600.0
QUEUE = "clocks"
SetClock = Callable[[float], None]


@job(queue=QUEUE)
def nothing() -> None: ...


@job(queue=QUEUE, tries=2, backoff=[0.2])
def fail_once(context: Context) -> int:
    if context.attempt == 1:
        raise RuntimeError("too early")
    return context.attempt


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Sets this process's wall clock so many seconds ahead; the monotonic one goes on."""

    def set_to(ahead_seconds: float) -> None:
        real = time.time

        class Ahead:
            @staticmethod
            def now(zone: tzinfo) -> datetime:
                return datetime.fromtimestamp(real() + ahead_seconds, zone)

        monkeypatch.setattr(time, "time", lambda: real() + ahead_seconds)
        monkeypatch.setattr(envelope, "datetime", Ahead)

    return set_to


@asynccontextmanager
async def working(settings: Settings) -> AsyncIterator[NatsBus]:
    """A worker of this process, and its line to the broker."""
    bus = await connect(settings)
    worker = Worker(assemble(bus, without_executor(settings, QUEUE)))
    running = asyncio.create_task(worker.run())
    try:
        yield bus
    finally:
        worker.stop("the test is over")
        await running
        await bus.close()


@asynccontextmanager
async def in_time(settings: Settings) -> AsyncIterator[tuple[NatsBus, Client]]:
    bus = await connect(settings)
    try:
        yield bus, Client.over(bus, settings)
    finally:
        await bus.close()


@pytest.mark.parametrize("skew", [HOUR, -HOUR])
async def test_a_wrong_clock_changes_nothing_for_a_job(
    settings: MakeSettings, set_clock: SetClock, skew: float
) -> None:
    made = settings(pools={QUEUE: {}})
    async with in_time(made) as (bus, client):
        lasting = await client.dispatch(nothing(), expires=60)
        expired = await client.dispatch(nothing(), expires=0.05)
        failing = await client.dispatch(fail_once())
        past = bus.now() + 0.1
        await eventually(lambda: bus.now() > past, what="one has expired")

        set_clock(skew)
        async with working(made) as skewed:
            assert abs(skewed.now() - bus.now()) < 1, "it has learnt the broker's time"
            views = [await client.wait(each, 30) for each in (lasting, expired, failing)]
            delayed = await Client.over(skewed, made).dispatch(nothing(), delay=0.3)
            views.append(await client.wait(delayed, 30))

    ends = [State.COMPLETED, State.CANCELLED, State.COMPLETED, State.COMPLETED]
    assert [view.state for view in views] == ends
    assert of(views[1], JobCancelled).cause == "expired"
    retrying = of(views[2], JobRetrying)
    assert timedelta(0) < retrying.due_at - views[2].record.dispatched_at < timedelta(seconds=30)


def of(view: JobView, kind: type[Any]) -> Any:
    [found] = [event for _, event in view.events if isinstance(event, kind)]
    return found
