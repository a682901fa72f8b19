"""The code of workflows after a deployment: some of it goes on with what `code_before` recorded."""

from __future__ import annotations

from typing import Any

from tests.integration.sample_jobs import QUEUE

from penstock.jobs import WorkflowContext, job, workflow


@job(queue=QUEUE, name="live.charge")
def charge(order: int) -> int:
    return order


@workflow(queue=QUEUE, name="live.grown")
async def grown(ctx: WorkflowContext, order: int) -> Any:
    """Does more at its end."""
    receipt = await ctx.run(charge(order=order))
    value = await ctx.wait_signal("go")
    await ctx.step("more", abs, -order)
    return [receipt, value]


@workflow(queue=QUEUE, name="live.patched")
async def patched(ctx: WorkflowContext, order: int) -> Any:
    """Does more at its beginning, of instances that begin with this code."""
    if ctx.patched("charge-first"):
        await ctx.run(charge(order=order))
    twice = await ctx.step("twice", int.__mul__, order, 2)
    return [twice, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.compatible", version=2, compatible_with=[1])
async def compatible(ctx: WorkflowContext, order: int) -> Any:
    twice = await ctx.step("twice", int.__mul__, order, 2)
    return [twice, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.diverging")
async def diverging(ctx: WorkflowContext, order: int) -> Any:
    """Charges something else."""
    receipt = await ctx.run(charge(order=order + 1))
    return [receipt, await ctx.wait_signal("go")]


@workflow(queue=QUEUE, name="live.versioned", version=2)
async def versioned(ctx: WorkflowContext, order: int) -> Any:
    """Is another workflow now, of the same name."""
    return [await ctx.run(charge(order=order)), await ctx.wait_signal("go")]
