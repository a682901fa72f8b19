"""A workflow that is cancelled ends after those that it runs have cleaned up."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import TIMED_OUT
from penstock.jobs import Cancelled, JobView, State, WorkflowContext, job, workflow
from penstock.testing import Bench
from penstock.verifying.coded import check_workflow

DONE: list[str] = []


@pytest.fixture(autouse=True)
def forgotten() -> None:
    DONE.clear()


@job(queue="trips")
def cancel(what: str) -> None:
    DONE.append(f"cancel {what}")


@workflow()
async def trip(ctx: WorkflowContext, what: str) -> None:
    try:
        await ctx.wait_signal("paid")
    finally:
        await ctx.run(cancel(what=what))
        await ctx.wait_signal("refunded", timeout=3_600, default=None)


@workflow()
async def two_trips(ctx: WorkflowContext, cleans_up: bool) -> str:
    try:
        await ctx.gather(trip(what="flight"), trip(what="hotel"))
    except Cancelled:
        if cleans_up:
            await ctx.run(cancel(what="all"))
        raise
    return "travelled"


@workflow(timeout=60)
async def hasty(ctx: WorkflowContext) -> None:
    await ctx.run(trip(what="flight"))


async def cancelled(bench: Bench, call: object, **terms: float) -> str:
    """Id of one that was cancelled; those below it wait for their refunds."""
    workflow_id = await bench.client.dispatch(call)  # type: ignore[arg-type]
    await bench.run_pending()
    await bench.client.workflows.cancel(workflow_id, "no holidays", **terms)
    await bench.run_pending()
    return workflow_id


async def job_of(bench: Bench, workflow_id: str) -> JobView:
    return await bench.client.job(workflow_id)


@pytest.mark.parametrize("cleans_up", [True, False])
async def test_a_cancelled_workflow_ends_after_those_below(
    penstock: Bench, cleans_up: bool
) -> None:
    workflow_id = await cancelled(penstock, two_trips(cleans_up=cleans_up))
    children = [f"{workflow_id}_step_{n}" for n in range(2)]
    assert {"cancel flight", "cancel hotel"} <= set(DONE)
    for child in children:
        assert (await job_of(penstock, workflow_id)).state is State.SUSPENDED
        await penstock.client.workflows.signal(child, "refunded")
        await penstock.run_pending()
        assert (await job_of(penstock, child)).state is State.CANCELLED
    view = await job_of(penstock, workflow_id)
    assert view.state is State.CANCELLED
    assert "no holidays" in str(view.events[-1])
    assert ("cancel all" in DONE) is cleans_up
    ends = [(await job_of(penstock, child)).record.sequence for child in children]
    assert max(ends) < view.record.sequence


@workflow()
async def slow_above(ctx: WorkflowContext) -> None:
    try:
        await ctx.run(trip(what="flight"))
    finally:
        await ctx.wait_signal("calm")
        await ctx.run(cancel(what="all"))


async def test_an_end_that_is_noted_while_it_cleans_up_breaks_no_rule(penstock: Bench) -> None:
    workflow_id = await cancelled(penstock, slow_above())
    child = f"{workflow_id}_step_0"
    await penstock.client.workflows.signal(child, "refunded")
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "calm")
    await penstock.run_pending()
    view = await job_of(penstock, workflow_id)
    assert view.state is State.CANCELLED
    noted = [
        end.key
        for _, event in view.events
        if isinstance(event, WorkflowAdvanced)
        for end in event.consumed
    ]
    assert "trip" in noted
    assert DONE[-1] == "cancel all"
    jobs = {0: (await job_of(penstock, child)).events}
    assert list(check_workflow(workflow_id, view.events, jobs)) == []


async def test_it_waits_no_longer_than_its_own_time_to_clean_up(penstock: Bench) -> None:
    workflow_id = await cancelled(penstock, two_trips(cleans_up=False), cleanup_seconds=60)
    await penstock.advance(61)
    await penstock.run_pending()
    assert (await job_of(penstock, workflow_id)).state is State.CANCELLED


async def test_one_that_times_out_waits_for_those_below_too(penstock: Bench) -> None:
    order = await penstock.start(hasty())
    await penstock.run_pending()
    await penstock.advance(61)
    await penstock.run_pending()
    assert DONE == ["cancel flight"]
    assert (await job_of(penstock, order.id)).state is State.SUSPENDED
    await penstock.client.workflows.signal(f"{order.id}_step_0", "refunded")
    await order.run()
    assert order.view.job.error is not None
    assert order.view.job.error.kind == TIMED_OUT


async def test_the_loser_of_a_race_is_not_waited_for(penstock: Bench) -> None:
    @workflow(name="tests.below.race")
    async def race(ctx: WorkflowContext) -> str:
        await ctx.race(ctx.sleep(timedelta(minutes=1)), trip(what="flight"))
        return "over"

    order = await penstock.start(race())
    await penstock.run_pending()
    await penstock.advance(61)
    await order.run()
    order.assert_completed("over")


async def test_workers_killed_at_any_event_leave_the_same_end() -> None:
    ends = set()
    for after in (False, True):
        for at in range(1 + 2 * after, 60, 4):
            bench = Bench()
            with bench.crashing(at=at, after=after) as crash:
                workflow_id = await cancelled(bench, two_trips(cleans_up=True))
                for n in range(2):
                    child = f"{workflow_id}_step_{n}"
                    await bench.client.workflows.signal(child, "refunded")
                    await bench.run_pending()
            await bench.advance(20)
            await bench.run_pending()
            states = [
                (await job_of(bench, one)).state
                for one in (workflow_id, f"{workflow_id}_step_0", f"{workflow_id}_step_1")
            ]
            assert states == [State.CANCELLED] * 3, (at, after, crash.event)
            if not crash.happened:
                break
            ends.add(crash.event)
    assert {"WorkflowAdvanced", "JobCancelled", "JobStarted"} <= ends
