"""Workflows in tests: time skipped, signals, held and failing steps, crashes at each event."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.jobs import (
    BadArguments,
    State,
    StepFailed,
    WorkflowContext,
    job,
    registry,
    workflow,
)
from penstock.testing import Bench, SyncBench

CHARGED: list[int] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    CHARGED.clear()
    registry.REGISTRY.update({kind.name: kind for kind in KINDS})
    yield Bench()


@job(queue="cards", tries=3)
def charge(order: int) -> str:
    CHARGED.append(order)
    return f"receipt {order}"


@job(queue="stock")
def reserve(order: int, item: int) -> int:
    return item


@workflow()
async def fulfil(ctx: WorkflowContext, order: int) -> Any:
    receipt = await ctx.run(charge(order=order))
    rate = await ctx.step("rate", abs, -order)
    items = await ctx.gather(*(reserve(order=order, item=item) for item in (1, 2)))
    approved = await ctx.wait_signal("approved", bool, timeout=timedelta(days=2), default=False)
    await ctx.sleep(timedelta(days=30))
    return [receipt, rate, items, approved]


@workflow()
async def patient(ctx: WorkflowContext) -> Any:
    return await ctx.wait_signal("go")


@workflow(tries=1)
async def careful(ctx: WorkflowContext, order: int) -> str:
    try:
        return str(await ctx.run(charge(order=order)))
    except StepFailed:
        return "refused"


KINDS: list[Any] = [charge, reserve, fulfil, patient, careful]
STEPS = ("charge", "rate", "gather/reserve", "gather/reserve#2", "approved", "sleep")


async def test_the_time_is_skipped_to_the_end(penstock: Bench) -> None:
    order = await penstock.start(fulfil(order=7))
    await order.run(until="approved")
    assert order.waits_for == ["approved"]
    await order.signal("approved", True)
    await order.run(until="sleep")
    await order.run()
    order.assert_completed(["receipt 7", 7, [1, 2], True])
    order.assert_steps(*STEPS)
    order.assert_in_order("charge", "approved")
    order.assert_ran(charge, times=1, order=7)
    order.assert_ran(reserve, times=2)
    order.assert_not_ran(reserve, item=3)
    assert order.state is State.COMPLETED


async def test_what_nobody_sends_times_out(penstock: Bench) -> None:
    order = await penstock.start(fulfil(order=7))
    await order.run()
    assert order.result[3] is False


async def test_a_wait_without_an_end_is_told(penstock: Bench) -> None:
    run = await penstock.start(patient())
    with pytest.raises(AssertionError, match="expected it to end; it waits for signal go"):
        await run.run()
    with pytest.raises(AssertionError, match="expected it to wait for 'come'"):
        await run.run(until="come")
    await run.signal("go", 5)
    with pytest.raises(AssertionError, match=r"to wait for 'come'; workflow .* is completed"):
        await run.run(until="come")
    run.assert_completed(5)


@pytest.mark.parametrize(
    "claim",
    [
        lambda run: run.assert_completed("other"),
        lambda run: run.assert_steps("charge"),
        lambda run: run.assert_in_order("approved", "charge"),
        lambda run: run.assert_ran(charge, times=2),
        lambda run: run.assert_ran(charge, order=8),
        lambda run: run.assert_not_ran(charge),
    ],
)
async def test_assertions_can_fail(penstock: Bench, claim: Any) -> None:
    order = await penstock.start(fulfil(order=7))
    await order.run()
    await (await penstock.start(fulfil(order=8))).run()  # another one's steps do not count
    with pytest.raises(AssertionError):
        claim(order)


async def test_a_held_step_waits_and_others_go_on(penstock: Bench) -> None:
    order = await penstock.start(fulfil(order=7))
    with penstock.holding(reserve, item=2):
        with pytest.raises(AssertionError, match="it waits for job gather/reserve#2"):
            await order.run(until="approved")
        assert order.waits_for == ["gather/reserve#2"]
    await order.run(until="approved")
    penstock.assert_completed(reserve, item=2)


async def test_a_chosen_step_fails(penstock: Bench) -> None:
    with penstock.failing(charge, ConnectionError("away"), order=8):
        first, second = [await penstock.start(careful(order=order)) for order in (7, 8)]
        await first.run()
        await second.run()
    first.assert_completed("receipt 7")
    second.assert_completed("refused")
    assert CHARGED == [7]
    with pytest.raises(BadArguments, match="no parameter 'number'"):
        penstock.failing(charge, ConnectionError, number=1)
    with pytest.raises(TypeError, match="is a workflow"), penstock.holding(careful):
        pass


async def test_a_blocked_one_is_told(penstock: Bench) -> None:
    order = await penstock.start(fulfil(order=7))
    await order.run(until="approved")
    original, fulfil.function = fulfil.function, careful.function
    try:
        await order.signal("approved", True)
        with pytest.raises(AssertionError, match="it is blocked: "):
            await order.run()
    finally:
        fulfil.function = original


@pytest.mark.parametrize("after", [False, True])
async def test_a_crash_at_each_event_changes_nothing(penstock: Bench, after: bool) -> None:
    events: list[str] = []
    for at in range(1, 100):
        order = await penstock.start(fulfil(order=at))
        with penstock.crashing(at=at, after=after) as crash:
            await order.run()
        order.assert_completed([f"receipt {at}", at, [1, 2], False])
        order.assert_steps(*STEPS)
        order.assert_ran(charge, times=1)
        order.assert_ran(reserve, times=2)
        if not crash.happened:
            break
        events.append(crash.event)
    assert {"WorkflowAdvanced", "StepRecorded", "JobDispatched", "JobCompleted"} <= {*events}
    assert len(events) > 15


async def test_events_are_counted_from_one_on(penstock: Bench) -> None:
    with pytest.raises(ValueError, match="from 1 on"), penstock.crashing(at=0):
        pass


def test_without_asyncio() -> None:
    registry.REGISTRY.update({kind.name: kind for kind in KINDS})
    with SyncBench() as bench:
        order = bench.start(fulfil(order=7))
        order.run(until="approved")
        order.signal("approved", True)
        with bench.crashing(at=2):
            order.run()
        order.assert_completed(["receipt 7", 7, [1, 2], True])
        other = bench.start(patient())
        other.cancel()
        assert other.state is State.CANCELLED


async def test_nothing_of_a_killed_worker_is_left(penstock: Bench) -> None:
    before = len(asyncio.all_tasks())
    order = await penstock.start(fulfil(order=7))
    with penstock.crashing(at=3):
        await order.run()
    await asyncio.sleep(0)
    assert len(asyncio.all_tasks()) == before
