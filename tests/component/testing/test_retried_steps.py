"""A step that died, retried by an operator: before and after its workflow took note of its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.jobs import State, StepFailed, WorkflowContext, derived_ids, job, workflow
from penstock.jobs.dead_letters.letter import LetterFilter
from penstock.testing import Bench

BROKEN: list[str] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    BROKEN[:] = ["gateway"]
    yield Bench()


@job(queue="cards", tries=1)
def charge(order: int) -> str:
    if BROKEN:
        raise ConnectionError("the gateway is away")
    return f"receipt {order}"


@workflow(tries=1)
async def pay(ctx: WorkflowContext, order: int) -> str:
    return str(await ctx.run(charge(order=order)))


@workflow(tries=1)
async def pay_or_not(ctx: WorkflowContext, order: int) -> str:
    try:
        return str(await ctx.run(charge(order=order)))
    except StepFailed:
        await ctx.wait_signal("go", bool)
        return "not paid"


async def test_a_workflow_that_died_of_it_goes_on_with_its_new_end(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(pay(order=7))
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.DEAD
    BROKEN.clear()
    await penstock.client.retry(derived_ids.step_id(workflow_id, 0))
    await penstock.run_pending()
    await penstock.client.retry(workflow_id)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "receipt 7"


async def test_a_workflow_that_took_note_of_it_is_not_changed(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(pay_or_not(order=7))
    await penstock.run_pending()
    BROKEN.clear()
    await penstock.client.retry(step := derived_ids.step_id(workflow_id, 0))
    await penstock.run_pending()
    assert (await penstock.client.job(step)).result == "receipt 7"
    await penstock.client.workflows.signal(workflow_id, "go", True)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).result == "not paid"


async def test_a_retry_of_all_leaves_out_steps_whose_workflow_took_note_of_them(
    penstock: Bench,
) -> None:
    handled = await penstock.client.dispatch(pay_or_not(order=7))
    died = await penstock.client.dispatch(pay(order=8))
    ended = await penstock.client.dispatch(pay_or_not(order=9))
    await penstock.run_pending()
    await penstock.client.workflows.signal(ended, "go", True)
    await penstock.run_pending()
    BROKEN.clear()
    outcomes = {
        outcome.id: outcome.error
        async for page in penstock.client.dead.retry_all(LetterFilter())
        for outcome in page
    }
    await penstock.run_pending()
    for workflow_id in (handled, ended):
        step = derived_ids.step_id(workflow_id, 0)
        assert f"is a step of workflow {workflow_id}" in str(outcomes.pop(step))
        assert (await penstock.client.job(step)).state is State.DEAD
    assert set(outcomes.values()) == {None}
    assert outcomes.keys() == {died, derived_ids.step_id(died, 0)}
    assert (await penstock.client.job(died)).result == "receipt 8"
