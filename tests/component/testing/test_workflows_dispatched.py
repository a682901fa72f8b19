"""Workflows wherever jobs are: schedules, batches, callbacks, graphs; unique, delayed, tagged."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.config.load import check
from penstock.events.job import JobDispatched
from penstock.jobs import (
    AlreadyDispatched,
    Context,
    State,
    Step,
    Unique,
    WorkflowContext,
    job,
    start_workflow,
    workflow,
)
from penstock.jobs.batches.batch_record import BatchState
from penstock.jobs.workflows.declared.reading import from_toml
from penstock.jobs.workflows.graph_record import GraphState
from penstock.testing import Bench

SETTINGS = check({"pools": {"workflows": {"priorities": True}, "cards": {}}})
MINUTELY = "* * * * *"


@pytest.fixture
def penstock() -> Bench:
    return Bench(SETTINGS)


@job(queue="cards")
def charge(order: int) -> str:
    return f"receipt {order}"


@workflow()
async def fulfil(ctx: WorkflowContext, order: int) -> str:
    receipt = await ctx.run(charge(order=order))
    await ctx.sleep(timedelta(seconds=1))
    return f"{receipt}, shipped"


@workflow(unique=Unique(3600.0, until_ended=True))
async def fulfil_once(ctx: WorkflowContext, order: int) -> str:
    return str(await ctx.wait_signal("approved", str))


async def finished(penstock: Bench, workflow_id: str) -> str:
    """Its result; its timers fire."""
    await penstock.run_pending()
    await penstock.advance(2)
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.COMPLETED, view.job.record
    return str(view.job.result)


async def test_a_schedule_starts_workflows(penstock: Bench) -> None:
    await penstock.client.schedules.add("nightly", fulfil(order=7), MINUTELY)
    await penstock.advance(60)
    await penstock.run_pending()
    [view] = await penstock.client.workflows.list()
    assert view.state is State.SUSPENDED
    assert "schedule:nightly" in view.job.record.tags
    assert await finished(penstock, view.id) == "receipt 7, shipped"


async def test_a_schedule_that_is_run_now_starts_one(penstock: Bench) -> None:
    await penstock.client.schedules.add("nightly", fulfil(order=7), "0 0 1 1 *")
    workflow_id = await penstock.client.schedules.run_now("nightly")
    assert (await penstock.client.workflows.get(workflow_id)).state is State.WAITING
    assert await finished(penstock, workflow_id) == "receipt 7, shipped"


async def test_a_batch_of_workflows_ends_when_all_of_them_have(penstock: Bench) -> None:
    batches = penstock.client.batches
    batch_id = await batches.create([fulfil(order=1), fulfil(order=2), charge(order=3)])
    await penstock.run_pending()
    shown = await batches.show(batch_id)
    assert (shown.state, shown.counts.completed) == (BatchState.RUNNING, 1)
    assert len(await penstock.client.workflows.list(state=State.SUSPENDED)) == 2
    await penstock.advance(2)
    await penstock.run_pending()
    shown = await batches.show(batch_id)
    assert (shown.state, shown.counts.completed) == (BatchState.COMPLETED, 3)


async def test_a_callback_may_be_a_workflow(penstock: Bench) -> None:
    await penstock.client.batches.create([charge(order=3)], then=fulfil(order=4))
    await penstock.run_pending()
    [view] = await penstock.client.workflows.list()
    assert await finished(penstock, view.id) == "receipt 4, shipped"


async def test_a_step_of_a_graph_may_be_a_workflow(penstock: Bench) -> None:
    graph_id = await penstock.client.graphs.dispatch(
        {"first": Step(fulfil(order=4)), "second": Step(charge(order=5), after=["first"])}
    )
    await penstock.run_pending()
    [view] = await penstock.client.workflows.list()
    assert view.state is State.SUSPENDED
    assert await finished(penstock, view.id) == "receipt 4, shipped"
    assert (await penstock.client.graphs.show(graph_id)).state is GraphState.COMPLETED


async def test_equal_workflows_are_one_while_the_first_has_not_ended(penstock: Bench) -> None:
    first = await penstock.client.dispatch(fulfil_once(order=7))
    await penstock.run_pending()
    with pytest.raises(AlreadyDispatched, match=first):
        await penstock.client.dispatch(fulfil_once(order=7))
    await penstock.client.dispatch(fulfil_once(order=8))
    await penstock.client.workflows.signal(first, "approved", "yes")
    await penstock.run_pending()
    assert await penstock.client.dispatch(fulfil_once(order=7)) != first


async def test_delay_priority_and_tags_hold_from_its_dispatch_to_its_last_advance(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(
        fulfil(order=7), delay=timedelta(minutes=5), priority="high", tags=["gold"]
    )
    await penstock.run_pending()
    assert (await penstock.client.workflows.get(workflow_id)).state is State.SCHEDULED
    await penstock.advance(timedelta(minutes=5))
    assert await finished(penstock, workflow_id) == "receipt 7, shipped"
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.record.tags == ("gold",)
    assert view.job.record.queue == "workflows--high"
    first = view.job.events[0][1]
    assert isinstance(first, JobDispatched)
    assert first.kind == "workflow"


ORDERS = f"""
name = "orders"
version = 1
required = ["order"]
[[steps]]
name = "charge"
function = "{charge.name}"
takes = {{ order = "context.order" }}
"""


async def test_a_schedule_starts_instances_of_a_definition(penstock: Bench) -> None:
    await penstock.client.definitions.define(from_toml(ORDERS))
    nightly = start_workflow(workflow="orders", values={"order": 7})
    await penstock.client.schedules.add("nightly", nightly, MINUTELY)
    for minutes in (1, 2):
        await penstock.advance(60)
        await penstock.run_pending()
        ids = await penstock.client.graphs.ids()
        assert len(ids) == minutes
    shown = await penstock.client.graphs.show(ids[0])
    assert (shown.state, shown.definition, shown.version) == (GraphState.COMPLETED, "orders", 1)
    penstock.assert_dispatched_times(charge, 2)


async def test_a_job_that_is_run_again_starts_one_instance(penstock: Bench) -> None:
    await penstock.client.definitions.define(from_toml(ORDERS))
    job_id = await penstock.client.dispatch(start_twice())
    await penstock.run_pending()
    view = await penstock.client.job(job_id)
    assert view.attempts == 2
    assert await penstock.client.graphs.ids() == [view.result]


@job(queue="cards", tries=2, backoff=[0.01])
def start_twice(context: Context) -> str:
    graph_id = context.start_workflow("orders", {"order": 7})
    if context.attempt == 1:
        raise ConnectionError("after it was started")
    return graph_id


async def test_a_definition_that_is_not_there_is_the_error_of_its_job(penstock: Bench) -> None:
    job_id = await penstock.client.dispatch(start_workflow(workflow="nothing"))
    await penstock.run_pending()
    error = (await penstock.client.job(job_id)).error
    assert error is not None
    assert "no workflow 'nothing' is defined" in error.message
