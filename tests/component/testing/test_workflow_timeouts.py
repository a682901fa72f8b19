"""Workflows that take longer than the whole of them may, from end to end in memory."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from penstock.config.load import check
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import TIMED_OUT
from penstock.jobs import Cancelled, State, StepFailed, WorkflowContext, job, workflow
from penstock.testing import Bench, WorkflowRun
from penstock.views import workflow_wait

DONE: list[str] = []
REASONS: set[str] = set()


@pytest.fixture
def penstock() -> Iterator[Bench]:
    DONE.clear()
    REASONS.clear()
    yield Bench()


@job(queue="trips")
def book(what: str) -> str:
    DONE.append(f"book {what}")
    return what


@job(queue="trips")
def cancel(what: str) -> None:
    DONE.append(f"cancel {what}")


@workflow(timeout=timedelta(days=7))
async def travel(ctx: WorkflowContext, pause_days: float = 2.0) -> str:
    try:
        await ctx.run(book(what="flight"), compensate=cancel(what="flight"))
        for _ in range(10):
            await ctx.sleep(timedelta(days=pause_days))
    except Cancelled as error:
        REASONS.add(str(error))
        await ctx.compensate()
        raise
    return "travelled"


async def timed_out(order: WorkflowRun) -> str:
    """Text of the error of one that is dead for its timeout."""
    await order.run()
    assert order.state is State.DEAD
    error = order.view.job.error
    assert error is not None
    assert error.kind == TIMED_OUT
    return error.message


async def test_at_its_deadline_a_workflow_cleans_up_and_is_dead(penstock: Bench) -> None:
    order = await penstock.start(travel())
    for _ in range(3):
        await penstock.run_pending()  # each time by an orchestrator that begins anew
        await penstock.advance(timedelta(days=2))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(order.id)
    assert view.state is State.SUSPENDED
    assert view.ends_by is not None
    assert "Its timeout is over at" in "".join(workflow_wait.reasons(view, view.ends_by))
    await penstock.advance(timedelta(days=1, minutes=1))
    reason = await timed_out(order)
    assert "it has not ended by" in reason
    assert (["book flight", "cancel flight"], {reason}) == (DONE, REASONS)
    [letter] = [letter async for letter in penstock.client.dead.find()]
    assert letter.content.error.kind == TIMED_OUT
    lines = list(workflow_wait.reasons(order.view, view.ends_by))
    assert any(reason in line for line in lines)


async def test_one_that_ends_in_time_is_left_alone(penstock: Bench) -> None:
    order = await penstock.start(travel(pause_days=0.1))
    for _ in range(10):
        await penstock.run_pending()
        await penstock.advance(timedelta(days=0.1))
    await order.run()
    order.assert_completed("travelled")
    await penstock.advance(timedelta(days=30))
    await penstock.run_pending()
    order.assert_completed("travelled")


async def test_an_advance_does_not_move_the_deadline(penstock: Bench) -> None:
    order = await penstock.start(travel())
    for _ in range(3):
        await penstock.run_pending()
        await penstock.advance(timedelta(days=2))
    await penstock.run_pending()
    view = await penstock.client.workflows.get(order.id)
    ends = {event.ends_by for _, event in view.job.events if isinstance(event, WorkflowAdvanced)}
    assert len(ends) == 1


@workflow(timeout=60)
async def stubborn(ctx: WorkflowContext) -> None:
    try:
        await ctx.wait_signal("never")
    finally:
        await ctx.run(book(what="hotel"), delay=timedelta(days=3))


async def test_one_that_does_not_clean_up_in_time_is_dead_and_its_steps_are_cancelled(
    penstock: Bench,
) -> None:
    order = await penstock.start(stubborn())
    await penstock.run_pending()
    await penstock.advance(61)
    await penstock.run_pending()
    view = await penstock.client.workflows.get(order.id)
    assert view.state is State.SUSPENDED
    assert view.cancel_by is not None
    assert "it has not ended by" in "".join(workflow_wait.reasons(view, view.cancel_by))
    await penstock.advance(301)
    assert "its time to clean up is over" in await timed_out(order)
    await penstock.advance(30)
    await penstock.run_pending()
    assert (await penstock.client.job(f"{order.id}_step_1")).state is State.CANCELLED


async def test_a_blocked_or_paused_one_times_out_too(penstock: Bench) -> None:
    blocked, paused = await penstock.start(stubborn()), await penstock.start(stubborn())
    await penstock.run_pending()
    await penstock.client.workflows.pause(paused.id)
    code = stubborn.function

    async def other(ctx: WorkflowContext) -> None:
        await ctx.wait_signal("another")

    stubborn.function = other
    try:
        await penstock.client.workflows.signal(blocked.id, "never")
        await penstock.run_pending()
        assert (await penstock.client.workflows.get(blocked.id)).blocked
        await penstock.advance(61)
        assert "it has not ended by" in await timed_out(blocked)
    finally:
        stubborn.function = code
    await penstock.run_pending()
    await penstock.advance(301)
    assert "its time to clean up is over" in await timed_out(paused)


async def test_without_time_to_clean_up_it_is_dead_at_once() -> None:
    DONE.clear()
    bench = Bench(check({"workflows": {"cleanup_seconds": 0}}))
    order = await bench.start(travel())
    await bench.run_pending()
    await bench.advance(timedelta(days=8))
    assert "it has not ended by" in await timed_out(order)
    assert DONE == ["book flight"]


@workflow()
async def above(ctx: WorkflowContext) -> str:
    try:
        await ctx.run(travel(), timeout=timedelta(hours=1))
    except StepFailed as error:
        return error.kind
    return "in time"


async def test_a_workflow_that_is_a_step_has_a_timeout_of_its_own(penstock: Bench) -> None:
    order = await penstock.start(above())
    await penstock.run_pending()
    await penstock.advance(timedelta(hours=1, seconds=1))
    await order.run()
    order.assert_completed(TIMED_OUT)
    assert DONE[-1] == "cancel flight"


@workflow(timeout=timedelta(hours=1))
async def poll(ctx: WorkflowContext, count: int = 0) -> None:
    await ctx.sleep(timedelta(minutes=25))
    await ctx.continue_as_new(poll(count=count + 1))


async def test_generations_are_parts_of_the_whole(penstock: Bench) -> None:
    order = await penstock.start(poll())
    for _ in range(3):
        await penstock.run_pending()
        await penstock.advance(timedelta(minutes=25, seconds=1))
    assert "it has not ended by" in await timed_out(order)


async def test_one_that_is_retried_has_its_whole_time_again(penstock: Bench) -> None:
    bench = Bench(check({"workflows": {"cleanup_seconds": 0}}))
    order = await bench.start(travel())
    await bench.run_pending()
    await bench.advance(timedelta(days=8))
    await timed_out(order)
    await bench.client.retry(order.id)
    await bench.run_pending()
    view = await bench.client.workflows.get(order.id)
    assert view.state is State.SUSPENDED
    assert view.ends_by is not None
    assert view.waiting_since is not None
    assert view.ends_by - view.waiting_since > timedelta(days=6)


async def test_a_workflow_killed_at_any_event_ends_once_at_its_deadline(penstock: Bench) -> None:
    for at in range(1, 40):
        bench = Bench()
        DONE.clear()
        order = await bench.start(stubborn())
        with bench.crashing(at=at) as crash:
            await bench.run_pending()
            await bench.advance(61)
            await bench.run_pending()
            await bench.advance(301)
            await timed_out(order)
        if not crash.happened:
            break
    assert at > 3


@pytest.mark.parametrize("bad", [-1, "1d", timedelta(days=400)])
def test_a_timeout_that_cannot_be_is_refused(bad: object) -> None:
    with pytest.raises(Exception, match=r"@workflow\(timeout=\.\.\.\)"):
        workflow(name="tests.timeouts.bad", timeout=bad)(travel.function)  # type: ignore[arg-type]
