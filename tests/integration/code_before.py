"""The code of workflows before a deployment; `code_after` is the code after it."""

from __future__ import annotations

from typing import Any

from tests.integration.sample_jobs import QUEUE

from penstock.jobs import WorkflowContext, job, workflow


@job(queue=QUEUE, name="live.charge")
def charge(order: int) -> int:
    return order


@workflow(queue=QUEUE, name="live.grown")
async def grown(ctx: WorkflowContext, order: int) -> Any:
    receipt = await ctx.run(charge(order=order))
    return [receipt, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.patched")
async def patched(ctx: WorkflowContext, order: int) -> Any:
    twice = await ctx.step("twice", int.__mul__, order, 2)
    return [twice, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.compatible")
async def compatible(ctx: WorkflowContext, order: int) -> Any:
    twice = await ctx.step("twice", int.__mul__, order, 2)
    return [twice, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.diverging")
async def diverging(ctx: WorkflowContext, order: int) -> Any:
    receipt = await ctx.run(charge(order=order))
    return [receipt, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.versioned")
async def versioned(ctx: WorkflowContext, order: int) -> Any:
    twice = await ctx.step("twice", int.__mul__, order, 2)
    return [twice, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.removed")
async def removed(ctx: WorkflowContext, order: int) -> Any:
    twice = await ctx.step("twice", int.__mul__, order, 2)
    return [twice, await ctx.wait_signal("go")]
