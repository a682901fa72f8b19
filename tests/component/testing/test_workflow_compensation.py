"""Undoing what a workflow has done, from end to end in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.jobs import State, StepFailed, WorkflowContext, job, workflow
from penstock.testing import Bench

DONE: list[str] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    DONE.clear()
    yield Bench()


@job(queue="trips", tries=1)
def book(what: str) -> str:
    if what.startswith("no "):
        raise ValueError(f"there is {what}")
    DONE.append(f"book {what}")
    return f"{what}-1"


@job(queue="trips", tries=1)
def cancel(booking: str) -> None:
    DONE.append(f"cancel {booking}")
    if booking == "car-1":
        raise ConnectionError("no answer")


@workflow(tries=1)
async def travel(ctx: WorkflowContext, parts: list[str]) -> str:
    try:
        for part in parts:
            await ctx.run(book(what=part), compensate=lambda booking: cancel(booking=booking))
    except StepFailed:
        await ctx.compensate()
        return "undone"
    return "booked"


async def test_what_completed_is_undone_newest_first_with_its_results(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(travel(parts=["flight", "hotel", "no guide"]))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == "undone"
    assert DONE == ["book flight", "book hotel", "cancel hotel-1", "cancel flight-1"]
    assert [step.key for step in view.steps if "cancel" in step.key] == [
        "compensate/newest_first/cancel",
        "compensate/newest_first/cancel#2",
    ]


async def test_nothing_is_undone_where_all_went_well(penstock: Bench) -> None:
    await penstock.client.dispatch(travel(parts=["flight", "hotel"]))
    await penstock.run_pending()
    penstock.assert_not_dispatched(cancel)


async def test_all_are_tried_where_one_cannot_be_undone(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(travel(parts=["flight", "car", "no guide"]))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert view.state is State.DEAD
    assert view.error is not None and "no answer" in view.error.message
    assert DONE[-2:] == ["cancel car-1", "cancel flight-1"]


@workflow(tries=3, backoff=[0.01])
async def shaky(ctx: WorkflowContext) -> None:
    await ctx.run(book(what="flight"), compensate=cancel(booking="flight"))
    await ctx.run(book(what="hotel"), compensate=cancel(booking="hotel"))
    await ctx.compensate()
    DONE.append("code")
    if DONE.count("code") == 1:
        raise ConnectionError("once")
    await ctx.compensate()


async def test_each_is_undone_once_however_often_the_code_runs(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(shaky())
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED
    penstock.assert_dispatched_times(cancel, 2)


@workflow()
async def tidy(ctx: WorkflowContext) -> str:
    try:
        await ctx.sleep(timedelta(hours=1))
        return "slept"
    finally:
        await ctx.run(book(what="room"))


async def test_a_finally_that_awaits_waits_for_its_turn(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(tidy())
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    assert DONE == []
    await penstock.advance(timedelta(hours=1, seconds=1))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "slept"
    assert DONE == ["book room"]


@workflow(tries=1)
async def careless(ctx: WorkflowContext) -> None:
    await ctx.run(book(what="flight"), compensate=lambda booking: booking)  # type: ignore[arg-type,return-value]
    await ctx.compensate()


async def test_what_makes_no_call_is_an_error(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(careless())
    await penstock.run_pending()
    error = (await penstock.client.job(workflow_id)).error
    assert error is not None and "compensate= made 'flight-1'" in error.message
