"""A coded workflow is one trace: its dispatch, its advances, its steps, across suspensions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.component.telemetry.test_workflow_traces import traced
from tests.integration.otlp import Received

from penstock.jobs import State, WorkflowContext, job, workflow
from penstock.testing import Bench
from penstock.worker.workflows.suspensions import Suspensions


@job(queue="cards", name="traced.charge")
def charge(order: int) -> int:
    return order


@workflow(name="traced.fulfil")
async def fulfil(ctx: WorkflowContext, order: int) -> bool:
    await ctx.gather(charge(order=order), charge(order=order + 1))
    await ctx.sleep(timedelta(hours=1))
    return await ctx.wait_signal("approved", bool)


def functions(spans: list[Received]) -> list[str]:
    return sorted(str(span.attributes["penstock.job.function"]) for span in spans)


async def test_advances_and_steps_carry_the_trace_of_the_dispatch(penstock: Bench) -> None:
    with traced() as collector:
        workflow_id = await penstock.client.dispatch(fulfil(order=1))
        await penstock.run_pending()
        await penstock.advance(timedelta(hours=2))
        await penstock.run_pending()
        await penstock.client.workflows.signal(workflow_id, "approved", True)
        await penstock.run_pending()
        view = await penstock.client.workflows.get(workflow_id)
    assert view.state is State.COMPLETED
    runs = collector.wait_for_all("run", 6)
    assert functions(runs) == [*["traced.charge"] * 2, *["traced.fulfil"] * 4]
    dispatches = collector.wait_for_all("dispatch", 2)
    assert {span.trace_id for span in (*runs, *dispatches)} == {view.job.trace_id}
    assert {(await penstock.client.job(step.job_id)).trace_id for step in view.steps[:2]} == {
        view.job.trace_id
    }


async def test_steps_that_a_crash_left_out_belong_to_the_trace(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crash(*_: object) -> None: ...

    with traced():
        with monkeypatch.context() as patched:
            patched.setattr(Suspensions, "dispatch_steps", crash)
            workflow_id = await penstock.client.dispatch(fulfil(order=1))
            await penstock.run_pending()
        await penstock.advance(11)
        await penstock.run_pending()
        view = await penstock.client.workflows.get(workflow_id)
        steps = [await penstock.client.job(step.job_id) for step in view.steps[:2]]
    assert {step.trace_id for step in steps} == {view.job.trace_id} != {""}


@workflow(name="traced.flaky", tries=1)
async def flaky(ctx: WorkflowContext) -> int:
    order = await ctx.run(charge(order=1))
    await ctx.wait_signal("go", bool)
    if FAILING:
        raise ConnectionError("once")
    return order + await ctx.run(charge(order=2))


FAILING: list[bool] = []


async def test_it_stays_one_trace_over_a_pause_its_death_and_processes_that_know_nothing(
    penstock: Bench,
) -> None:
    """Each `run_pending` has a worker and an orchestrator that know nothing of those before."""
    workflows = penstock.client.workflows
    FAILING.append(True)
    with traced() as collector:
        workflow_id = await penstock.client.dispatch(flaky())
        await penstock.run_pending()
        await workflows.pause(workflow_id, "wrong day")
        await workflows.signal(workflow_id, "go", True)
        await penstock.run_pending()
        await workflows.resume(workflow_id)
        await penstock.run_pending()
        assert (await workflows.get(workflow_id)).state is State.DEAD
        FAILING.clear()
        await penstock.client.retry(workflow_id)
        await penstock.run_pending()
        view = await workflows.get(workflow_id)
    assert view.state is State.COMPLETED
    runs = collector.wait_for_all("run", 7)
    assert functions(runs) == [*["traced.charge"] * 2, *["traced.flaky"] * 5]
    assert {span.trace_id for span in runs} == {view.job.trace_id} != {""}
