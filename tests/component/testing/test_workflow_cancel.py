"""Cancelling workflows that clean up, from end to end in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.config.load import check
from penstock.events.workflow import WorkflowCancelling
from penstock.jobs import (
    Cancelled,
    JobRefused,
    State,
    StepFailed,
    WorkflowContext,
    derived_ids,
    job,
    workflow,
)
from penstock.testing import Bench

DONE: list[str] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    DONE.clear()
    yield Bench()


@job(queue="trips")
def book(what: str) -> str:
    DONE.append(f"book {what}")
    return what


@job(queue="trips")
def cancel(booking: str) -> None:
    DONE.append(f"cancel {booking}")


@workflow()
async def travel(ctx: WorkflowContext) -> str:
    try:
        for part in ("flight", "hotel"):
            await ctx.run(book(what=part), compensate=lambda booking: cancel(booking=booking))
        await ctx.sleep(timedelta(days=30))
    except Cancelled:
        await ctx.compensate()
        raise
    return "travelled"


async def test_a_cancelled_workflow_cleans_up_and_then_is_cancelled(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(travel())
    await penstock.run_pending()
    view = await penstock.client.workflows.cancel(workflow_id, "no holidays")
    assert view.state is State.SUSPENDED
    assert view.cancel_by is not None
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.CANCELLED
    assert DONE == ["book flight", "book hotel", "cancel hotel", "cancel flight"]
    assert "no holidays" in str(view.job.events[-1])
    assert [step.outcome for step in view.steps if step.key == "sleep"] == ["given-up"]


@workflow()
async def stubborn(ctx: WorkflowContext) -> str:
    try:
        await ctx.sleep(timedelta(days=30))
    finally:
        await ctx.wait_signal("never")
    return "over"


async def test_the_time_to_clean_up_is_bounded(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(stubborn())
    await penstock.run_pending()
    await penstock.client.workflows.cancel(workflow_id, cleanup_seconds=60)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await penstock.advance(61)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.CANCELLED


@workflow()
async def swallowing(ctx: WorkflowContext) -> str:
    try:
        await ctx.wait_signal("never")
    except Cancelled:
        return "anyway"
    return "signalled"


async def test_code_that_goes_on_regardless_ends_cancelled(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(swallowing())
    await penstock.run_pending()
    await penstock.client.workflows.cancel(workflow_id)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.CANCELLED


async def test_cancelling_twice_is_once(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(travel())
    await penstock.run_pending()
    for _ in range(2):
        await penstock.client.workflows.cancel(workflow_id)
    events = (await penstock.client.job(workflow_id)).events
    assert [type(event) for _, event in events].count(WorkflowCancelling) == 1
    await penstock.run_pending()
    assert DONE[2:] == ["cancel hotel", "cancel flight"]


async def test_one_that_has_done_nothing_is_cancelled_at_once(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(travel())
    view = await penstock.client.workflows.cancel(workflow_id)
    assert view.state is State.CANCELLED


async def test_settings_may_forbid_to_clean_up() -> None:
    penstock = Bench(check({"workflows": {"cleanup_seconds": 0}}))
    workflow_id = await penstock.client.dispatch(travel())
    await penstock.run_pending()
    view = await penstock.client.workflows.cancel(workflow_id)
    assert view.state is State.CANCELLED


async def test_one_that_is_requeued_before_it_noticed_goes_on(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(swallowing())
    await penstock.run_pending()
    await penstock.client.workflows.cancel(workflow_id)
    await penstock.client.cancel(workflow_id)
    await penstock.client.retry(workflow_id)
    await penstock.client.workflows.signal(workflow_id, "never", 1)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "signalled"


@workflow()
async def journey(ctx: WorkflowContext) -> None:
    try:
        await ctx.run(travel())
    except StepFailed as failure:
        DONE.append(failure.kind)
        raise


async def test_a_workflow_below_cleans_up_too(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(journey())
    await penstock.run_pending()
    await penstock.client.workflows.cancel(workflow_id)
    await penstock.run_pending()
    below = await penstock.client.job(derived_ids.step_id(workflow_id, 0))
    assert below.state is State.CANCELLED
    assert DONE == ["book flight", "book hotel", "cancel hotel", "cancel flight"]
    assert (await penstock.client.job(workflow_id)).state is State.CANCELLED


@pytest.mark.parametrize("seconds", [-1.0, 86_401.0, float("nan")])
async def test_a_time_that_cannot_be_is_refused(penstock: Bench, seconds: float) -> None:
    workflow_id = await penstock.client.dispatch(travel())
    with pytest.raises(JobRefused, match="cleanup_seconds"):
        await penstock.client.workflows.cancel(workflow_id, cleanup_seconds=seconds)
