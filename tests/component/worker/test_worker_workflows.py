"""A workflow whose worker was taken for dead while its code ran: one advance counts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.component.worker.given import QUEUE, Gate, Stage, once, settings

from penstock.bus.protocol import Outgoing
from penstock.events.envelope import encode
from penstock.events.job import JobRecovered, JobStarted
from penstock.jobs import NotFound, State, WorkflowContext, derived_ids, job, registry, workflow

gate = Gate()


@job(queue="elsewhere")
def charge(order: int) -> int:
    return order


@workflow(queue=QUEUE)
async def fulfil(ctx: WorkflowContext, order: int) -> int:
    await ctx.step("look", gate.pass_through, "looked")
    return int(await ctx.run(charge(order=order)))


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gate.__init__()  # type: ignore[misc]
    for kind in (charge, fulfil):
        registry.REGISTRY[kind.name] = kind
    yield
    for kind in (charge, fulfil):
        registry.REGISTRY.pop(kind.name, None)


async def test_of_two_advances_at_the_same_time_one_is_stored() -> None:
    stage = Stage(settings())
    async with stage.worker():
        workflow_id = await stage.client.dispatch(fulfil(order=7))
        await once(lambda: gate.came)
        for event in (
            JobRecovered(job_id=workflow_id, reason="lost"),
            JobStarted(
                job_id=workflow_id, queue=QUEUE, attempt=1, host="h", worker="heir", message=1
            ),
        ):
            await stage.bus.append(Outgoing(stage.subjects.event(event), encode(event)))
        gate.open()
    record = (await stage.client.job(workflow_id)).record
    assert (record.state, record.worker) == (State.RUNNING, "heir")
    assert not {"StepRecorded", "WorkflowAdvanced"} & set(await stage.story(workflow_id))
    with pytest.raises(NotFound):
        await stage.client.job(derived_ids.step_id(workflow_id, 0))


async def test_without_a_second_one_it_is_stored() -> None:
    stage = Stage(settings())
    gate.open()
    async with stage.worker():
        workflow_id = await stage.client.dispatch(fulfil(order=7))
        await stage.reached(workflow_id, State.SUSPENDED)
    assert {"StepRecorded", "WorkflowAdvanced"} & set(await stage.story(workflow_id))
    await stage.client.job(derived_ids.step_id(workflow_id, 0))
