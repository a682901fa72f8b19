"""Batches as steps of workflows, from end to end in memory: each job once, one result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.waiting import eventually

from penstock.events.job import JobFailed
from penstock.events.workflow import (
    StepsScheduled,
    WorkflowAdvanced,
)
from penstock.jobs import (
    MapResult,
    State,
    StepFailed,
    WorkflowContext,
    derived_ids,
    job,
    workflow,
)
from penstock.jobs.batches.batch_record import BatchState
from penstock.jobs.batches.client import Batches
from penstock.orchestrator.retention.workflow_carrier import WorkflowCarrier
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.orchestrator.workflows.tracker import WorkflowTracker
from penstock.testing import Bench
from penstock.worker.workflows import step_batches
from penstock.worker.workflows.step_batches import StepBatches

MADE: list[int] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    MADE.clear()
    yield Bench()


@job(queue="boxes", tries=1)
def pack(item: int) -> int:
    if item < 0:
        raise ValueError("no such item")
    return item


@job(queue="boxes")
def ship() -> None: ...


def calls(items: int, failing: int = 0) -> Iterator[Any]:
    for item in range(items):
        MADE.append(item)
        yield pack(item=item if item >= failing else -1)


@workflow()
async def packing(ctx: WorkflowContext, items: int, failing: int, allowed: int) -> list[Any]:
    try:
        packed = await ctx.map(calls(items, failing), allowed_failures=allowed)
    except StepFailed as failure:
        return [failure.key, failure.kind, str(failure)]
    await ctx.run(ship())
    return [packed.total, packed.completed, packed.failed, packed.cancelled]


async def test_a_map_is_one_step_with_counts(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(packing(items=300, failing=2, allowed=2))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == [300, 298, 2, 0]
    assert [(step.key, step.kind, step.outcome) for step in view.steps] == [
        ("pack", "batch", "completed"),
        ("ship", "job", "completed"),
    ]
    batch = await penstock.client.batches.show(view.steps[0].batch_id)
    assert batch.state is BatchState.COMPLETED
    kinds = [type(event) for _, event in view.job.events]
    assert kinds.count(StepsScheduled) == 1
    assert kinds.count(WorkflowAdvanced) == 2


async def test_the_calls_do_not_run_again_where_their_result_is_recorded(penstock: Bench) -> None:
    await penstock.client.dispatch(packing(items=10, failing=0, allowed=0))
    await penstock.run_pending()
    assert [*range(10), 0, 0] == MADE  # the first of them names the function, in each advance


async def test_more_failures_than_allowed_are_an_error_with_the_counts(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(packing(items=30, failing=3, allowed=2))
    await penstock.run_pending()
    key, kind, message = (await penstock.client.job(workflow_id)).result
    assert (key, kind) == ("pack", "batch-failed")
    assert "of 30 jobs failed" in message
    penstock.assert_not_dispatched(ship)


async def test_a_map_of_nothing_completes(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(packing(items=0, failing=0, allowed=0))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == [0, 0, 0, 0]


@workflow(tries=3, backoff=[0.01])
async def persistent(ctx: WorkflowContext) -> int:
    return (await ctx.map(calls(25), name="boxes")).completed


@pytest.mark.parametrize("killed_in", ["begin_step", "add", "close"])
@pytest.mark.parametrize("after", [False, True])
async def test_a_kill_while_the_jobs_are_made_leaves_none_out_and_repeats_none(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch, killed_in: str, after: bool
) -> None:
    monkeypatch.setattr(step_batches, "_CALLS_AT_ONCE", 10)
    monkeypatch.setattr(Batches, killed_in, _killed_once(getattr(Batches, killed_in), after))
    workflow_id = await penstock.client.dispatch(persistent())
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == 25
    assert [type(event) for _, event in view.job.events].count(JobFailed) == 1
    penstock.assert_dispatched_times(pack, 25)


async def test_an_attempt_that_comes_late_leaves_the_batch_of_its_successor_alone(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, count = Batches.add, 0

    async def overtaken(self: Batches, batch_id: str, some: Any, **terms: Any) -> list[str]:
        nonlocal count
        count += 1
        if count == 2:
            await add(self, batch_id, calls(25), **{**terms, "start": 0})
            await self.close(batch_id)
        return await add(self, batch_id, some, **terms)

    monkeypatch.setattr(step_batches, "_CALLS_AT_ONCE", 10)
    monkeypatch.setattr(Batches, "add", overtaken)
    workflow_id = await penstock.client.dispatch(persistent())
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == 25
    penstock.assert_dispatched_times(pack, 25)


def _killed_once(method: Callable[..., Any], after: bool) -> Callable[..., Any]:
    """The method; its second call, or its only one, ends with an error once."""
    count = 0

    async def killed(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        is_last = count == (2 if method is Batches.add else 1)
        if is_last and not after:
            raise ConnectionResetError("killed")
        returned = await method(*args, **kwargs)
        if is_last:
            raise ConnectionResetError("killed")
        return returned

    return killed


async def test_a_batch_is_recorded_before_its_first_job_is_made(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[str] = []
    begin = StepBatches.begin

    def begins(*args: Any) -> None:
        pattern = penstock.bus.subjects.events("job", "*", StepsScheduled.__name__)
        recorded.extend(
            stored.subject
            for stored in penstock.bus.stored(penstock.bus.subjects.events_stream, pattern)
        )
        begin(*args)

    monkeypatch.setattr(StepBatches, "begin", begins)
    await penstock.client.dispatch(persistent())
    await penstock.run_pending()
    assert len(recorded) == 1


@workflow()
async def mixed(ctx: WorkflowContext) -> str:
    try:
        await ctx.map([pack(item=1), "no call"], name="boxes")  # type: ignore[list-item]
    except StepFailed as failure:
        return str(failure)
    return ""


async def test_what_is_no_call_fails_the_map_and_names_it(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(mixed())
    await penstock.run_pending()
    assert "found 'no call'" in (await penstock.client.job(workflow_id)).result


@job(queue="later")
def slow(item: int) -> None: ...


@workflow()
async def hurried(ctx: WorkflowContext, ends: bool) -> None:
    await ctx.race(ctx.map(slow(item=item) for item in range(20)), ctx.wait_signal("enough"))
    if not ends:
        await ctx.wait_signal("end")


@pytest.mark.parametrize("how", ["given up", "ended", "cancelled"])
async def test_a_map_that_is_not_waited_for_any_more_is_cancelled(
    penstock: Bench, how: str
) -> None:
    await penstock.client.pause_queue("later")
    workflow_id = await penstock.client.dispatch(hurried(ends=how == "ended"))
    suspended = SuspendedWorkflows(penstock.bus, penstock.bus.subjects, penstock.client)
    follower = asyncio.create_task(suspended.follow())
    try:
        await _run_shortly(penstock)
        if how == "cancelled":
            await penstock.client.workflows.cancel(workflow_id, cleanup_seconds=0)
        else:
            await penstock.client.workflows.signal(workflow_id, "enough")
            await _see_all(penstock, suspended)
            await _run_shortly(penstock)
        await _see_all(penstock, suspended)
    finally:
        follower.cancel()
    view = await penstock.client.workflows.get(workflow_id)
    batch = await penstock.client.batches.show(view.steps[0].batch_id)
    assert batch.state is BatchState.STOPPING
    expected = {"given up": State.SUSPENDED, "ended": State.COMPLETED}
    assert view.state is expected.get(how, State.CANCELLED)


async def _run_shortly(penstock: Bench) -> None:
    with pytest.raises(TimeoutError):  # the queue of the batch is paused
        await penstock.run_pending(timeout_seconds=0.3)


async def _see_all(penstock: Bench, suspended: SuspendedWorkflows) -> None:
    stream = penstock.bus.subjects.events_stream
    last = max(
        stored[-1].sequence
        for pattern in suspended.patterns()
        if (stored := penstock.bus.stored(stream, pattern))
    )
    await eventually(lambda: suspended.position >= last, 5.0, "the log")
    await suspended.round(penstock.bus.now())


@workflow()
async def patient(ctx: WorkflowContext) -> int:
    packed, _ = await ctx.gather(ctx.map(calls(5), name="boxes"), ctx.wait_signal("go"))
    return int(packed.completed)


async def test_the_end_of_a_batch_outlasts_its_events_while_its_workflow_waits(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(patient())
    await penstock.run_pending()
    bus, subjects = penstock.bus, penstock.bus.subjects
    batch_id = derived_ids.step_id(workflow_id, 0)
    events = bus.stored(subjects.events_stream, subjects.events("batch", batch_id))
    tracker = WorkflowTracker(bus.client(), subjects, penstock.client)
    carrier = WorkflowCarrier(bus, subjects, "tests", tracker)
    assert not await carrier.carry([("batch", batch_id)], events[-1].sequence)
    await bus.remove(
        subjects.events_stream, subjects.events("batch", batch_id), events[-1].sequence + 1
    )
    await penstock.client.workflows.signal(workflow_id, "go")
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == 5
    penstock.assert_dispatched_times(pack, 5)
    carried = bus.stored(subjects.events_stream, subjects.events("batch", batch_id))
    assert [stored.subject.rpartition(".")[2] for stored in carried] == ["BatchCarried"]
    await carrier.carry([("batch", batch_id)], carried[-1].sequence)
    assert len(bus.stored(subjects.events_stream, subjects.events("batch", batch_id))) == 1


def test_a_result_counts_all_jobs() -> None:
    assert MapResult(batch_id="b", completed=1, failed=2, cancelled=3).total == 6
