"""Undoing what a workflow has done, from end to end in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.jobs import Cancelled, State, StepFailed, WorkflowContext, job, workflow
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


@workflow(tries=1)
async def tour(ctx: WorkflowContext, parts: list[str], at_once: int) -> str:
    for part in parts:
        await ctx.run(book(what=part), compensate=lambda booking: cancel(booking=booking))
    try:
        await ctx.compensate(at_once=at_once)
    except StepFailed as error:
        return error.kind
    return "undone"


async def test_several_may_be_undone_beside_each_other_the_newest_group_first(
    penstock: Bench,
) -> None:
    parts = [str(number) for number in range(5)]
    workflow_id = await penstock.client.dispatch(tour(parts=parts, at_once=2))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == "undone"
    undone = [what.removeprefix("cancel ") for what in DONE[5:]]
    assert [set(undone[:2]), set(undone[2:4]), set(undone[4:])] == [
        {"4-1", "3-1"},
        {"2-1", "1-1"},
        {"0-1"},
    ]
    assert view.advances == 5 + 3


async def test_a_group_is_tried_to_its_end_where_one_cannot_be_undone(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(tour(parts=["flight", "car", "hotel"], at_once=2))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "builtins.ConnectionError"
    assert set(DONE[3:]) == {"cancel hotel-1", "cancel car-1", "cancel flight-1"}


@pytest.mark.parametrize("bad", [0, -1, True, "2"])
async def test_a_number_at_once_that_cannot_be_is_refused(penstock: Bench, bad: int) -> None:
    @workflow(name=f"tests.compensation.{bad}", tries=1)
    async def refused(ctx: WorkflowContext) -> None:
        await ctx.compensate(at_once=bad)

    order = await penstock.start(refused())
    await order.run()
    assert order.view.job.error is not None
    assert "expected 1 or more" in order.view.job.error.message


@job(queue="trips")
def note(what: str) -> None:
    DONE.append(what)


@workflow()
async def noted(ctx: WorkflowContext) -> str:
    await ctx.gather(
        *(ctx.run(note(what=n), name=n, compensate=note(what=f"undo {n}")) for n in "abc")
    )
    await ctx.compensate(at_once=2)
    return "undone"


async def test_groups_are_undone_once_whichever_event_a_worker_is_killed_at() -> None:
    for at in range(1, 60, 3):
        DONE.clear()
        bench = Bench()
        order = await bench.start(noted())
        with bench.crashing(at=at) as crash:
            await order.run()
        order.assert_completed("undone")
        keys = [step.key for step in order.view.steps]
        assert len(keys) == len(set(keys)) == 6
        if not crash.happened:
            break


@workflow()
async def cancel_slowly(ctx: WorkflowContext, booking: str) -> None:
    await ctx.sleep(90)
    await ctx.run(cancel(booking=booking))


async def _journey(ctx: WorkflowContext) -> str:
    try:
        for part in ("flight", "hotel"):
            await ctx.run(
                book(what=part), compensate=lambda booking: cancel_slowly(booking=booking)
            )
        await ctx.run(book(what="no guide"))
    except StepFailed:
        await ctx.compensate()
    return "undone"


@workflow(tries=1)
async def journey(ctx: WorkflowContext) -> str:
    return await _journey(ctx)


@workflow(tries=1, timeout=timedelta(minutes=1))
async def short_journey(ctx: WorkflowContext) -> str:
    return await _journey(ctx)


async def _to_the_end(penstock: Bench, workflow_id: str) -> State:
    for _ in range(4):
        await penstock.run_pending()
        await penstock.advance(timedelta(seconds=60))
    await penstock.run_pending()
    return (await penstock.client.job(workflow_id)).state


async def test_undoing_goes_on_to_its_end_where_the_workflow_is_cancelled(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(journey())
    await penstock.run_pending()
    await penstock.client.workflows.cancel(workflow_id, "the customer called")
    assert await _to_the_end(penstock, workflow_id) is State.CANCELLED
    assert DONE[2:] == ["cancel hotel-1", "cancel flight-1"]


async def test_undoing_goes_on_to_its_end_where_the_time_is_over(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(short_journey())
    assert await _to_the_end(penstock, workflow_id) is State.DEAD
    error = (await penstock.client.job(workflow_id)).error
    assert error is not None and error.kind == "workflow-timeout"
    assert DONE[2:] == ["cancel hotel-1", "cancel flight-1"]


@workflow(tries=1)
async def trip(ctx: WorkflowContext) -> str:
    try:
        await ctx.run(book(what="flight"), compensate=lambda booking: cancel(booking=booking))
        await ctx.wait_signal("passport", str)
    except (StepFailed, Cancelled):
        await ctx.compensate()
        return "undone"
    return "booked"


async def test_what_completed_is_undone_where_the_workflow_is_cancelled(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(trip())
    await penstock.run_pending()
    await penstock.client.workflows.cancel(workflow_id, "the customer called")
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.CANCELLED
    assert DONE == ["book flight", "cancel flight-1"]
