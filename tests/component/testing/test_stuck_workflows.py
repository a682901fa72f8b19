"""Workflows that an orchestrator has missed: found, and set going again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta

import pytest

from penstock.jobs import Call, State, Step, WorkflowContext, job, workflow
from penstock.jobs.workflows.graph_record import GraphState
from penstock.jobs.workflows.recovery import StuckWorkflows
from penstock.jobs.workflows.stuck import StuckWorkflow
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.testing import Bench
from penstock.worker.workflows.suspensions import Suspensions

SILENT = timedelta(seconds=30)


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@job(queue="cards")
def charge(order: int) -> str:
    return f"receipt {order}"


@workflow()
async def fulfil(ctx: WorkflowContext, order: int) -> str:
    approved = await ctx.wait_signal("approved", bool)
    return f"{await ctx.run(charge(order=order))}, {approved}"


def stuck_of(penstock: Bench) -> StuckWorkflows:
    return penstock.client.stuck_workflows


async def found(penstock: Bench) -> list[tuple[str, str]]:
    return [(one.id, one.reason) for one in await stuck_of(penstock).find(SILENT)]


@asynccontextmanager
async def orchestrating(penstock: Bench) -> AsyncIterator[None]:
    """An orchestrator that reads the log from here on."""
    subjects = penstock.bus.subjects
    suspended = SuspendedWorkflows(penstock.bus.client(), subjects, penstock.client)
    graphs = WorkflowTracker(penstock.bus.client(), subjects, penstock.client)
    events = penstock.bus.stored(subjects.events_stream, subjects.events())
    suspended.position = graphs.position = events[-1].sequence
    tasks = [
        asyncio.create_task(work)
        for work in (suspended.follow(), suspended.act(), graphs.follow(), graphs.act())
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def recovered(penstock: Bench) -> list[StuckWorkflow]:
    async with orchestrating(penstock):
        return await stuck_of(penstock).recover(await stuck_of(penstock).find(SILENT))


async def test_a_lost_wake_up_is_found_and_made_up_for(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    waits = await penstock.client.dispatch(fulfil(order=8))
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    assert await found(penstock) == [], "an orchestrator may be about to wake it"
    await penstock.advance(60)
    assert await found(penstock) == [
        (workflow_id, "what it waits for has come, and nothing woke it")
    ]
    assert [one.outcome for one in await recovered(penstock)] == ["goes on"]
    assert await found(penstock) == []
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "receipt 7, True"
    assert (await penstock.client.job(waits)).state is State.SUSPENDED


async def test_a_step_that_was_not_dispatched_is_found_and_dispatched(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None: ...

    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    with monkeypatch.context() as patched:
        patched.setattr(Suspensions, "dispatch_steps", crash)
        await penstock.run_pending()
    penstock.assert_not_dispatched(charge)
    await penstock.advance(60)
    assert await found(penstock) == [(workflow_id, "step charge was not dispatched")]
    assert [one.outcome for one in await recovered(penstock)] == ["goes on"]
    penstock.assert_dispatched_times(charge, 1)


@workflow()
async def charge_all(ctx: WorkflowContext) -> int:
    mapped = await ctx.map(charge(order=order) for order in range(3))
    return int(mapped.completed)


@workflow()
async def charge_once(ctx: WorkflowContext) -> str:
    return str(await ctx.run(charge(order=7)))


@workflow()
async def below(ctx: WorkflowContext) -> str:
    return str(await ctx.run(charge_once()))


@workflow()
async def undone(ctx: WorkflowContext) -> str:
    await ctx.run(charge(order=7), compensate=charge(order=8))
    await ctx.compensate()
    return "undone"


@workflow(timeout=30)
async def limited(ctx: WorkflowContext) -> None:
    await ctx.sleep(timedelta(hours=1))


@contextmanager
def unattended() -> Iterator[None]:
    """No orchestrator looks after suspended workflows: nothing wakes them."""

    async def nothing(self: SuspendedWorkflows, now: float) -> None: ...

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SuspendedWorkflows, "round", nothing)
        yield


@pytest.mark.parametrize(
    ("call", "result"),
    [(charge_all(), 3), (below(), "receipt 7"), (undone(), "undone")],
    ids=["map", "workflow", "compensation"],
)
async def test_whatever_it_waits_for_a_lost_wake_up_is_found(
    penstock: Bench, call: Call, result: object
) -> None:
    workflow_id = await penstock.client.dispatch(call)
    for _ in range(3):
        with unattended():
            await penstock.run_pending()
        await penstock.advance(60)
        for one in await recovered(penstock):
            assert one.reason == "what it waits for has come, and nothing woke it"
            assert one.outcome == "goes on"
    assert (await penstock.client.job(workflow_id)).result == result


async def test_a_timeout_that_was_not_noticed_is_found(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(limited())
    await penstock.run_pending()
    await penstock.advance(120)
    assert await found(penstock) == [(workflow_id, "its timeout is over, and nothing cancelled it")]
    assert [one.outcome for one in await recovered(penstock)] == ["goes on"]
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.DEAD


async def test_a_graph_that_the_orchestrator_lost_is_found_and_goes_on(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph_id = await graphs.dispatch(
        {"charge": Step(charge(order=7)), "again": Step(charge(order=8), after=["charge"])},
        title="nightly",
    )
    await penstock.advance(60)
    [one] = await stuck_of(penstock).find(SILENT)
    assert (one.id, one.kind, one.function) == (graph_id, "declared", "nightly")
    assert one.reason == "step charge was not dispatched"
    assert [one.outcome for one in await recovered(penstock)] == ["goes on"]
    await penstock.run_pending()
    assert (await graphs.show(graph_id)).state is GraphState.COMPLETED


async def test_without_an_orchestrator_it_stays_stuck_and_that_is_said(penstock: Bench) -> None:
    await penstock.client.graphs.dispatch({"charge": Step(charge(order=7))})
    await penstock.advance(60)
    stuck = await stuck_of(penstock).find(SILENT)
    [one] = await stuck_of(penstock).recover(stuck, patience_seconds=0.3)
    assert one.outcome.startswith("failed: is an orchestrator running?")


async def test_what_waits_for_a_worker_is_paused_or_is_over_is_not_stuck(penstock: Bench) -> None:
    queued, paused, cancelled = [
        await penstock.client.dispatch(fulfil(order=order)) for order in range(3)
    ]
    await penstock.run_pending()
    for workflow_id in (queued, paused, cancelled):
        await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.client.workflows.pause(paused)
    await penstock.client.workflows.cancel(cancelled)
    await penstock.advance(60)
    assert [one.outcome for one in await recovered(penstock)] == ["goes on"]
    assert (await penstock.client.job(queued)).state is State.SUSPENDED, "its message waits"
    await penstock.advance(60)
    assert await found(penstock) == []
