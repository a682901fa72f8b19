"""Health names the workflows whose code does not fit, once that lasts."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.config import Settings
from penstock.jobs import WorkflowContext, job, registry, workflow
from penstock.testing import Bench
from penstock.views.blocked_workflows import blocked_workflows


@job(queue="cards", name="blocked.charge")
def charge() -> None: ...


@workflow(name="blocked.fulfil")
async def before(ctx: WorkflowContext) -> None:
    await ctx.wait_signal("go", bool)
    await ctx.run(charge())


def deploy(*, is_changed: bool) -> None:
    registry.REGISTRY.pop("blocked.fulfil", None)

    @workflow(name="blocked.fulfil")
    async def fulfil(ctx: WorkflowContext) -> None:
        await ctx.wait_signal("start" if is_changed else "go", bool)
        await ctx.run(charge())


@pytest.fixture
def penstock() -> Bench:
    registry.REGISTRY["blocked.fulfil"] = before
    return Bench()


async def test_workflows_that_stay_blocked_are_reported_until_they_go_on(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(before())
    await penstock.run_pending()
    await penstock.client.workflows.signal(workflow_id, "go", True)
    deploy(is_changed=True)
    await penstock.run_pending()
    assert (await penstock.client.workflows.get(workflow_id)).blocked
    assert await blocked_workflows(penstock.bus, Settings()) == (), "a deployment may be under way"
    for _ in range(6):
        await penstock.advance(timedelta(minutes=1))
        await penstock.run_pending()
    [fact] = await blocked_workflows(penstock.bus, Settings())
    assert (fact.function, fact.workflows) == ("blocked.fulfil", 1)
    deploy(is_changed=False)
    await penstock.advance(timedelta(minutes=10))
    await penstock.run_pending()
    assert await blocked_workflows(penstock.bus, Settings()) == ()
