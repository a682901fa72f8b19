"""Workflows from end to end in memory: the real worker, the real orchestrator's wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from penstock.events.job import JobStarted
from penstock.events.workflow import StepRecorded, WorkflowAdvanced
from penstock.jobs import (
    JobRefused,
    State,
    StepFailed,
    WorkflowContext,
    WorkflowError,
    job,
    registry,
    workflow,
)
from penstock.testing import Bench

RATES: list[str] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    RATES.clear()
    yield Bench()


@job(queue="cards", tries=1)
def charge(order: int) -> str:
    if order < 0:
        raise ValueError("no such order")
    return f"receipt {order}"


@job(queue="stock")
def reserve(order: int) -> int:
    return order * 2


def fetch_rate(currency: str) -> float:
    RATES.append(currency)
    return 1.5


@workflow()
async def fulfil(ctx: WorkflowContext, order: int) -> dict[str, Any]:
    receipt = await ctx.run(charge(order=order))
    rate = await ctx.step("rate", fetch_rate, "EUR")
    stock, again = await ctx.gather(reserve(order=order), reserve(order=order + 1))
    ctx.set_status(stage="packed", parcels=2)
    return {"receipt": receipt, "rate": rate, "stock": [stock, again]}


async def test_steps_run_in_their_own_queues_and_are_joined(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.COMPLETED
    assert view.job.result == {"receipt": "receipt 7", "rate": 1.5, "stock": [14, 16]}
    assert [(step.key, step.outcome) for step in view.steps] == [
        ("charge", "completed"),
        ("rate", "completed"),
        ("gather/reserve", "completed"),
        ("gather/reserve#2", "completed"),
    ]
    assert RATES == ["EUR"]
    penstock.assert_dispatched_times(reserve, 2, on_queue="stock")


async def test_a_join_costs_one_advance(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    history = (await penstock.client.job(workflow_id)).events
    kinds = [type(event) for _, event in history]
    assert kinds.count(WorkflowAdvanced) == 2
    assert kinds.count(JobStarted) == 3
    assert kinds.count(StepRecorded) == 1


@workflow()
async def careful(ctx: WorkflowContext, order: int) -> str:
    try:
        return str(await ctx.run(charge(order=order)))
    except StepFailed as failure:
        return f"{failure.key}: {failure.kind}"


async def test_a_dead_step_is_an_error_at_its_await(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(careful(order=-1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "charge: builtins.ValueError"


@workflow()
async def reminded(ctx: WorkflowContext) -> str:
    began = ctx.now()
    await ctx.sleep(timedelta(hours=1))
    return f"{(ctx.now() - began).total_seconds():.0f} s"


async def test_a_timer_wakes_it(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.SUSPENDED
    assert [(step.key, step.kind) for step in view.waits_for] == [("sleep", "timer")]
    await penstock.advance(timedelta(minutes=59))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await penstock.advance(timedelta(minutes=1, seconds=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


@workflow()
async def approved(ctx: WorkflowContext) -> list[bool]:
    first = await ctx.wait_signal("approved", bool)
    second = await ctx.wait_signal("approved", bool, timeout=timedelta(days=2), default=False)
    return [first, second]


async def test_signals_are_consumed_in_order_once(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    signal = penstock.client.workflows.signal
    await signal(workflow_id, "approved", True, signal_id="a")
    await signal(workflow_id, "approved", True, signal_id="a")
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await signal(workflow_id, "approved", False)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == [True, False]
    with pytest.raises(JobRefused, match="it is completed"):
        await signal(workflow_id, "approved", True)


async def test_a_signal_that_does_not_come_leads_to_the_default(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(approved())
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    await penstock.advance(timedelta(days=2, seconds=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == [True, False]


@workflow()
async def raced(ctx: WorkflowContext, order: int) -> Any:
    return await ctx.race(reserve(order=order), ctx.sleep(60))


async def test_the_loser_of_a_race_is_given_up(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(raced(order=2))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == 4


@workflow()
async def hurried(ctx: WorkflowContext, order: int) -> Any:
    await ctx.race(ctx.sleep(60), delayed_reserve(order))
    return await ctx.run(charge(order=order))


async def delayed_reserve(order: int) -> None:
    await asyncio.sleep(1)


async def test_a_foreign_await_names_its_place(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(hurried(order=1))
    await penstock.run_pending()
    error = (await penstock.client.job(workflow_id)).error
    assert error is not None and error.kind.endswith(WorkflowError.__name__)
    assert f"{__file__}:" in error.message


async def test_a_cancelled_workflow_does_not_go_on(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    view = await penstock.client.workflows.cancel(workflow_id, "no need")
    assert view.state is State.CANCELLED
    await penstock.advance(timedelta(hours=2))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.CANCELLED


async def test_other_code_blocks_it_until_the_first_is_back(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    original = reminded.function

    async def changed(ctx: WorkflowContext) -> str:
        return str(await ctx.run(charge(order=1)))

    reminded.function = changed  # type: ignore[assignment]
    try:
        await penstock.advance(timedelta(hours=2))
        await penstock.run_pending()
        view = await penstock.client.workflows.get(workflow_id)
        assert view.state is State.SUSPENDED
        assert "recorded is timer 'sleep'" in view.blocked
    finally:
        reminded.function = original
    await penstock.advance(timedelta(minutes=2))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


def test_a_workflow_is_an_async_function() -> None:
    def plain(ctx: WorkflowContext) -> None: ...

    with pytest.raises(TypeError, match="async def"):
        workflow(name="tests.plain")(plain)  # type: ignore[arg-type]
    assert "tests.plain" not in registry.REGISTRY
