"""Workers that are lost inside of advances: no try of the workflow is used."""

from __future__ import annotations

from penstock.jobs import State, WorkflowContext, job, workflow
from penstock.testing import Bench


@job(queue="cards")
def charge(order: int) -> int:
    return order


@workflow(tries=1)
async def tried_once(ctx: WorkflowContext) -> int:
    return int(await ctx.run(charge(order=7)))


async def test_a_workflow_with_one_try_outlives_a_lost_worker(penstock: Bench) -> None:
    crashes = set()
    for after in (False, True):
        for at in range(1, 7):
            order = await penstock.start(tried_once())
            with penstock.crashing(at=at, after=after) as crash:
                await order.run()
            crashes.add((crash.event, after))
            assert order.state is State.COMPLETED, (crash.event, after)
    assert {("JobStarted", True), ("WorkflowAdvanced", False)} <= crashes
