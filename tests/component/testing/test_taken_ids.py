"""Jobs under the ids of steps to come: the step fails or is that job, and never waits silently."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bus.protocol import Expect, Outgoing
from penstock.events.envelope import encode
from penstock.events.job import JobDispatched
from penstock.events.subjects import BadName
from penstock.jobs import State, StepFailed, WorkflowContext, job, workflow
from penstock.jobs.dispatch.job_factory import Terms
from penstock.jobs.job_type import Call
from penstock.testing import Bench

ID = "order-1"
STEP = f"{ID}_step_0"


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@job()
def charge(order: int) -> int:
    return order


@job()
def other(order: int) -> int:
    return -order


@workflow()
async def below(ctx: WorkflowContext) -> int:
    return await ctx.run(charge(order=7))


async def _caught(step: Any) -> Any:
    try:
        return await step
    except StepFailed as error:
        return error.kind


@workflow()
async def one_job(ctx: WorkflowContext) -> Any:
    return await _caught(ctx.run(charge(order=7)))


@workflow()
async def one_workflow(ctx: WorkflowContext) -> Any:
    return await _caught(ctx.run(below()))


@workflow()
async def one_batch(ctx: WorkflowContext) -> Any:
    counts = await _caught(ctx.map(charge(order=n) for n in range(3)))
    return counts if isinstance(counts, str) else counts.completed


def taking(penstock: Bench, call: Call, **terms: Any) -> JobDispatched:
    """A job under the id of a step, as a program may dispatch that has the dispatcher's key."""
    return penstock.client.dispatcher.factory.event(call, Terms(job_id=STEP, **terms))


async def take(penstock: Bench, call: Call) -> None:
    """Stores the event of one that never runs."""
    event, subjects = taking(penstock, call), penstock.bus.subjects
    expect = Expect(0, subjects.job(STEP))
    await penstock.bus.append(Outgoing(subjects.event(event), encode(event), {}, expect))


async def result_of(penstock: Bench, call: Call) -> Any:
    """What the workflow returned, once every message that may be lost was looked for."""
    await penstock.client.dispatch(call, job_id=ID)
    for _ in range(3):
        await penstock.run_pending()
        await penstock.advance(30)
    view = await penstock.client.job(ID)
    assert view.state is State.COMPLETED, view.state
    return view.result


@pytest.mark.parametrize("call", [one_job(), one_workflow()], ids=["job", "workflow"])
@pytest.mark.parametrize("taken_by", [other(order=7), charge(order=8)], ids=["job", "arguments"])
async def test_a_step_of_which_the_id_is_another_jobs_fails(
    penstock: Bench, call: Call, taken_by: Call
) -> None:
    await take(penstock, taken_by)
    assert await result_of(penstock, call) == "id-taken"


async def test_a_job_that_has_ended_under_the_id_of_a_step_is_not_its_result(
    penstock: Bench,
) -> None:
    await take(penstock, other(order=7))
    await penstock.client.cancel(STEP)
    assert await result_of(penstock, one_job()) == "id-taken"


async def test_the_same_job_dispatched_before_is_the_step(penstock: Bench) -> None:
    same = taking(penstock, charge(order=7), step="charge", workflow=one_job.name)
    await penstock.client.dispatcher.sender.send(same)
    await penstock.run_pending()
    assert await result_of(penstock, one_job()) == 7


async def test_a_map_of_which_the_id_is_another_batchs_fails(penstock: Bench) -> None:
    await penstock.client.batches.begin_step(STEP, title="mine", allowed_failures=0, total=1)
    assert await result_of(penstock, one_batch()) == "id-taken"


async def test_a_map_that_was_begun_before_goes_on(penstock: Bench) -> None:
    await penstock.client.batches.begin_step(STEP, title="charge", allowed_failures=0, total=None)
    assert await result_of(penstock, one_batch()) == 3


@pytest.mark.parametrize("job_id", [STEP, "a_step_1_step_12", "b-1_0123abcd_7"])
async def test_a_client_gives_no_job_the_id_of_a_step_or_of_a_job_of_a_batch(
    penstock: Bench, job_id: str
) -> None:
    with pytest.raises(BadName, match="those of steps"):
        await penstock.client.dispatch(charge(order=1), job_id=job_id)
    assert not penstock.bus.stored(
        penstock.bus.subjects.events_stream, penstock.bus.subjects.events()
    )
