"""The workflows that the benchmark of workflows runs, and their steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.jobs import WorkflowContext, job, workflow


@job(queue="bench")
def noop(number: int) -> int:
    return number


def nothing(number: int) -> int:
    return number


@workflow(queue="bench")
async def one_job(ctx: WorkflowContext, number: int) -> int:
    return int(await ctx.run(noop(number=number)))


@workflow(queue="bench")
async def one_inline(ctx: WorkflowContext, number: int) -> int:
    return await ctx.step("nothing", nothing, number)


@workflow(queue="bench")
async def chain(ctx: WorkflowContext, steps: int) -> int:
    """One job after another."""
    total = 0
    for number in range(steps):
        total += await ctx.run(noop(number=number))
    return total


@workflow(queue="bench")
async def join(ctx: WorkflowContext, jobs: int) -> int:
    """Jobs beside each other."""
    return sum(await ctx.gather(*(noop(number=number) for number in range(jobs))))


@workflow(queue="bench")
async def waiting(ctx: WorkflowContext) -> None:
    """Suspended until it is sent a signal."""
    await ctx.wait_signal("go")


@workflow(queue="bench")
async def until(ctx: WorkflowContext, due: float) -> float:
    """Sleeps until a time, POSIX seconds; returns how late it goes on."""
    at = datetime.fromtimestamp(due, UTC)
    await ctx.sleep(max(at - ctx.now(), timedelta()))
    return ctx.now().timestamp() - due
