"""Workflows that are steps of workflows, from end to end in memory."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events.workflow import WorkflowAdvanced
from penstock.jobs import (
    MapResult,
    State,
    StepFailed,
    WorkflowContext,
    derived_ids,
    job,
    workflow,
)
from penstock.orchestrator.workflows.suspended.step_jobs import StepJobs
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing import Bench


@job(queue="parcels", tries=1)
def pack(item: int) -> int:
    if item < 0:
        raise ValueError("no such item")
    return item * 10


@workflow(tries=1)
async def parcel(ctx: WorkflowContext, item: int) -> int:
    packed = await ctx.run(pack(item=item))
    await ctx.sleep(1)
    return int(packed) + 1


@workflow()
async def order(ctx: WorkflowContext, items: list[int]) -> Any:
    try:
        return await ctx.gather(*(parcel(item=item) for item in items))
    except StepFailed as failure:
        return [failure.key, failure.kind]


async def test_a_workflow_is_awaited_as_a_job_is() -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(order(items=[1, 2]))
    await penstock.run_pending()
    await penstock.advance(2)
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == [11, 21]
    assert [(step.key, step.kind, step.outcome) for step in view.steps] == [
        ("gather/parcel", "workflow", "completed"),
        ("gather/parcel#2", "workflow", "completed"),
    ]
    child = await penstock.client.workflows.get(view.steps[0].job_id)
    assert child.state is State.COMPLETED
    assert [step.key for step in child.steps] == ["pack", "sleep"]
    assert view.advances == 1


async def test_the_failure_of_one_is_raised_at_its_await() -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(order(items=[-1]))
    await penstock.run_pending()
    key, kind = (await penstock.client.job(workflow_id)).result
    assert key == "gather/parcel"
    assert kind.endswith("StepFailed")


@workflow()
async def deep(ctx: WorkflowContext, depth: int) -> None:
    if depth:
        await ctx.run(deep(depth=depth - 1))
    else:
        await ctx.wait_signal("never")


async def test_cancelling_one_cancels_those_below() -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(deep(depth=2))
    await penstock.run_pending()
    child = derived_ids.step_id(workflow_id, 0)
    grandchild = derived_ids.step_id(child, 0)
    assert (await penstock.client.job(grandchild)).state is State.SUSPENDED
    await penstock.client.workflows.cancel(workflow_id)
    await penstock.run_pending()
    assert (await penstock.client.job(child)).state is State.CANCELLED
    assert (await penstock.client.job(grandchild)).state is State.CANCELLED


async def test_a_workflow_that_runs_itself_without_end_is_an_error() -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(deep(depth=1_000))
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert view.state is State.DEAD
    assert view.error is not None
    deepest = workflow_id
    for _ in range(derived_ids.MAX_NESTING):
        deepest = derived_ids.step_id(deepest, 0)
    error = (await penstock.client.job(deepest)).error
    assert error is not None and "nest at most 5 deep" in error.message


@workflow()
async def wholesale(ctx: WorkflowContext, depth: int) -> int:
    if depth:
        return int(await ctx.run(wholesale(depth=depth - 1)))
    packed: MapResult = await ctx.map(pack(item=item) for item in range(20))
    return packed.completed


async def test_the_deepest_one_may_have_a_batch() -> None:
    penstock = Bench()
    root = "w" * derived_ids.MAX_ID_LENGTH
    await penstock.client.dispatch(wholesale(depth=derived_ids.MAX_NESTING), job_id=root)
    await penstock.run_pending()
    view = await penstock.client.job(root)
    assert view.result == 20
    assert [type(event) for _, event in view.events].count(WorkflowAdvanced) == 1
    penstock.assert_dispatched_times(pack, 20)


@workflow()
async def hasty(ctx: WorkflowContext) -> None:
    await ctx.race(ctx.run(deep(depth=0)), ctx.sleep(1))
    await ctx.run(pack(item=1))


async def test_a_loser_is_cancelled_also_where_the_workflow_ended_before_it_was_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def slow(*_: object) -> None: ...

    penstock = Bench()
    workflow_id = await penstock.client.dispatch(hasty())
    with monkeypatch.context() as patched:
        patched.setattr(StepJobs, "cancel", slow)
        await penstock.run_pending()
        await penstock.advance(2)
        await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED
    suspended = SuspendedWorkflows(penstock.bus, penstock.bus.subjects, penstock.client)
    for stored in penstock.bus.stored(penstock.bus.subjects.events_stream, ">"):
        suspended.see(stored)
    await suspended.round(penstock.bus.now())
    await penstock.run_pending()
    loser = await penstock.client.job(derived_ids.step_id(workflow_id, 0))
    assert loser.state is State.CANCELLED
