"""Workflows and graphs that are paused and resumed: the real worker and orchestrator, in memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.jobs.telling import event

from penstock.events.job import JobDispatched, JobStarted
from penstock.events.workflow import (
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.jobs import JobRefused, NotFound, State, Step, WorkflowContext, job, workflow
from penstock.jobs.job_log import JobLog
from penstock.jobs.job_view import JobView
from penstock.jobs.queues import queue_messages
from penstock.jobs.workflows.graph_record import GraphState
from penstock.orchestrator.core.unresolved import Unresolved
from penstock.orchestrator.reconciling.reconciler import Reconciler
from penstock.orchestrator.reconciling.transitions import step
from penstock.testing import Bench
from penstock.verifying.coded import check_workflow
from penstock.worker.workflows.suspensions import Suspensions


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@job(queue="cards", tries=1)
def charge(order: int) -> str:
    return f"receipt {order}"


@job(queue="stock")
def pack(order: int) -> str:
    return f"parcel {order}"


@workflow()
async def fulfil(ctx: WorkflowContext, order: int) -> str:
    receipt = await ctx.run(charge(order=order))
    approved = await ctx.wait_signal("approved", bool)
    parcel = await ctx.run(pack(order=order))
    return f"{receipt}, {approved}, {parcel}"


@workflow()
async def reminded(ctx: WorkflowContext) -> str:
    began = ctx.now()
    await ctx.sleep(timedelta(hours=1))
    return f"{(ctx.now() - began).total_seconds():.0f} s"


def test_a_start_of_a_paused_workflow_breaks_a_rule() -> None:
    dispatched = event(JobDispatched)
    before = [dispatched, event(WorkflowPaused), event(WorkflowResumed), event(JobStarted)]
    for events, faults in ((before, 0), ([dispatched, event(WorkflowPaused), before[-1]], 1)):
        history = list(enumerate(events, 1))
        violations = list(check_workflow("j1", history, {}))
        assert [one.text for one in violations] == faults * ["it was started while it was paused"]


def starts(view: JobView) -> int:
    return sum(isinstance(event, JobStarted) for _, event in view.events)


async def test_a_paused_workflow_does_not_go_on_until_it_is_resumed(penstock: Bench) -> None:
    workflows = penstock.client.workflows
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    paused = await workflows.pause(workflow_id, "the gateway is down")
    assert (paused.state, paused.pause_reason) == (State.SUSPENDED, "the gateway is down")
    assert paused.paused_at is not None
    await workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    await penstock.advance(timedelta(days=2))
    await penstock.run_pending()
    penstock.assert_not_dispatched(pack)
    resumed = await workflows.resume(workflow_id)
    assert (resumed.paused_at, resumed.pause_reason) == (None, "")
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert view.result == "receipt 7, True, parcel 7"
    assert starts(view) == 4


async def test_one_that_was_not_started_yet_is_not(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.client.workflows.pause(workflow_id)
    await penstock.run_pending()
    assert starts(await penstock.client.job(workflow_id)) == 0
    await penstock.client.workflows.resume(workflow_id)
    await penstock.run_pending()
    assert starts(await penstock.client.job(workflow_id)) == 2
    penstock.assert_dispatched_times(charge, 1)


async def test_a_delayed_one_keeps_its_time(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(reminded(), delay=60)
    await penstock.client.workflows.pause(workflow_id)
    await penstock.client.workflows.resume(workflow_id)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SCHEDULED
    await penstock.advance(61)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED


@pytest.mark.parametrize("resumed_after", [timedelta(minutes=30), timedelta(hours=3)])
async def test_a_timer_fires_at_its_time_but_not_while_it_is_paused(
    penstock: Bench, resumed_after: timedelta
) -> None:
    workflow_id = await penstock.client.dispatch(reminded())
    await penstock.run_pending()
    await penstock.client.workflows.pause(workflow_id)
    await penstock.advance(resumed_after)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.SUSPENDED
    await penstock.client.workflows.resume(workflow_id)
    await penstock.run_pending()
    is_over = resumed_after > timedelta(hours=1)
    view = await penstock.client.job(workflow_id)
    assert view.state is (State.COMPLETED if is_over else State.SUSPENDED)
    await penstock.advance(timedelta(minutes=31))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


async def test_a_wake_up_on_its_way_is_void(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    record = (await penstock.client.job(workflow_id)).record
    await penstock.bus.append(queue_messages.ready(penstock.bus.subjects, record, {}))
    await penstock.client.workflows.pause(workflow_id)
    before = starts(await penstock.client.job(workflow_id))
    await penstock.run_pending()
    assert starts(await penstock.client.job(workflow_id)) == before
    assert (await penstock.client.workflows.get(workflow_id)).paused_at is not None


@workflow()
async def parted(ctx: WorkflowContext, order: int) -> str:
    await ctx.step("look", len, "abc")
    return str(await ctx.run(charge(order=order)))


async def test_steps_of_an_advance_during_which_it_was_paused_wait(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    store: Callable[..., Awaitable[Any]] = Suspensions.store

    async def pause_first(self: Suspensions, finished: Any) -> Any:
        for claimed, _ in finished:
            await penstock.client.workflows.pause(claimed.id)
        return await store(self, finished)

    workflow_id = await penstock.client.dispatch(parted(order=7))
    with monkeypatch.context() as patched:
        patched.setattr(Suspensions, "store", pause_first)
        await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.paused_at is not None
    assert [(step.key, step.outcome) for step in view.steps] == [
        ("look", "completed"),
        ("charge", "waiting"),
    ]
    await penstock.advance(60)
    await penstock.run_pending()
    penstock.assert_not_dispatched(charge)
    await penstock.client.workflows.resume(workflow_id)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "receipt 7"
    penstock.assert_dispatched_times(charge, 1)


async def test_an_advance_whose_worker_is_lost_while_it_is_paused_waits(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(parted(order=7))
    subjects = penstock.bus.subjects
    (message,) = penstock.bus.stored(subjects.jobs_stream, subjects.queue("workflows"))
    record = (await penstock.client.job(workflow_id)).record
    start = JobStarted(
        job_id=workflow_id,
        queue="workflows",
        attempt=1,
        host="gone",
        worker="gone",
        message=message.sequence,
    )
    await penstock.bus.append(JobLog(penstock.bus, subjects).outgoing(start, record.sequence))
    await penstock.client.workflows.pause(workflow_id)
    await penstock.run_pending()
    view = await penstock.client.job(workflow_id)
    assert (view.state, starts(view)) == (State.WAITING, 1)
    await penstock.client.workflows.resume(workflow_id)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


async def test_a_resumption_cut_in_two_is_completed_by_the_orchestrator(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None: ...

    subjects = penstock.bus.subjects
    workflow_id = await penstock.client.dispatch(parted(order=7))
    await penstock.client.workflows.pause(workflow_id)
    await penstock.run_pending()
    with monkeypatch.context() as patched:
        patched.setattr(JobLog, "follow_up", crash)
        await penstock.client.workflows.resume(workflow_id)
    assert not penstock.bus.stored(subjects.jobs_stream, subjects.queue("workflows"))
    table = Unresolved(10.0, 10)
    for stored in penstock.bus.stored(subjects.events_stream, subjects.job(workflow_id)):
        if (transition := step(stored)) is not None:
            table.see(transition)
    reconciler = Reconciler(penstock.bus, subjects, table)
    for _ in range(2):  # the first reads its queue, which the event of a resumption may not tell
        await reconciler.round(penstock.bus.now() + 11.0)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "receipt 7"


async def test_pausing_and_resuming_twice_changes_nothing(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    await penstock.client.workflows.resume(workflow_id)
    for reason in ("first", "second"):
        view = await penstock.client.workflows.pause(workflow_id, reason)
        assert view.pause_reason == "first"
    for _ in range(2):
        await penstock.client.workflows.resume(workflow_id)
    kinds = [type(event) for _, event in (await penstock.client.job(workflow_id)).events]
    assert (kinds.count(WorkflowPaused), kinds.count(WorkflowResumed)) == (1, 1)


async def test_what_cannot_be_paused_is_refused_with_the_reason(penstock: Bench) -> None:
    workflows = penstock.client.workflows
    ended = await penstock.client.dispatch(reminded())
    await workflows.cancel(ended)
    plain = await penstock.client.dispatch(charge(order=1))
    for act, done in ((workflows.pause, "paused"), (workflows.resume, "resumed")):
        with pytest.raises(JobRefused, match=f"cannot be {done}: it is cancelled"):
            await act(ended)
        with pytest.raises(JobRefused, match="is no workflow"):
            await act(plain)
        with pytest.raises(NotFound):
            await act("there-is-none")


async def test_a_paused_workflow_can_be_cancelled_and_requeued(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(fulfil(order=7))
    await penstock.run_pending()
    await penstock.client.workflows.pause(workflow_id)
    await penstock.client.workflows.cancel(workflow_id)
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert (view.state, view.paused_at) == (State.CANCELLED, None)
    await penstock.client.retry(workflow_id)
    await penstock.client.workflows.signal(workflow_id, "approved", True)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


# --- graphs ---------------------------------------------------------------------------------------
async def graph_of_two(penstock: Bench) -> str:
    return await penstock.client.graphs.dispatch(
        {"charge": Step(charge(order=7)), "pack": Step(pack(order=7), after=["charge"])}
    )


async def test_a_paused_graph_dispatches_no_further_step(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph_id = await graph_of_two(penstock)
    record = await graphs.pause(graph_id, "wrong day")
    assert (record.state, record.pause_reason) == (GraphState.RUNNING, "wrong day")
    await penstock.run_pending()
    penstock.assert_not_dispatched(charge)
    await graphs.resume(graph_id)
    await penstock.run_pending()
    record = await graphs.show(graph_id)
    assert (record.state, record.paused_at) == (GraphState.COMPLETED, None)
    with pytest.raises(JobRefused, match="cannot be paused: it is completed"):
        await graphs.pause(graph_id)


async def test_steps_that_were_dispatched_end_while_it_is_paused(penstock: Bench) -> None:
    graphs = penstock.client.graphs
    graph_id = await graphs.dispatch(
        {"charge": Step(charge(order=7), delay=60), "pack": Step(pack(order=7), after=["charge"])}
    )
    alone = await graphs.dispatch({"charge": Step(charge(order=8), delay=60)})
    await penstock.run_pending()
    for name in (graph_id, alone):
        await graphs.pause(name)
    await penstock.advance(61)
    await penstock.run_pending()
    for name in (graph_id, alone):
        assert (await graphs.step(name, "charge")).state is State.COMPLETED
        assert (await graphs.show(name)).state is GraphState.RUNNING
    penstock.assert_not_dispatched(pack)
    for name in (graph_id, alone):
        await graphs.resume(name)
    await penstock.run_pending()
    for name in (graph_id, alone):
        assert (await graphs.show(name)).state is GraphState.COMPLETED


async def test_a_paused_graph_can_be_cancelled(penstock: Bench) -> None:
    graph_id = await graph_of_two(penstock)
    await penstock.client.graphs.pause(graph_id)
    await penstock.client.graphs.cancel(graph_id, "not needed")
    await penstock.run_pending()
    record = await penstock.client.graphs.show(graph_id)
    assert (record.state, record.is_paused) == (GraphState.CANCELLED, False)
