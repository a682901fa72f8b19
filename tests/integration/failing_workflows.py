"""Workflows for the failures that docs/workflows.md lists."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.integration.sample_jobs import QUEUE, hold, write
from tests.integration.workflow_jobs import double

from penstock.jobs import Cancelled, StepFailed, WorkflowContext, job, workflow


@workflow(queue=QUEUE)
async def stopped(ctx: WorkflowContext, diary: str, gate: str) -> int:
    """Is in the middle of an advance until a gate opens; then schedules a step."""
    write(diary, "advance", "begun")
    _pass_gate(gate)
    return int(await ctx.run(double(diary, 3)))


def _pass_gate(gate: str) -> None:
    while not Path(gate).exists():
        time.sleep(0.005)


@workflow(queue=QUEUE)
async def signalled(ctx: WorkflowContext, gate: str) -> list[int]:
    """Waits for a job first, then for two signals."""
    await ctx.run(hold(diary=gate + "-diary", name="first", gate=gate))
    return [await ctx.wait_signal("go", int), await ctx.wait_signal("go", int)]


@job(queue=QUEUE)
def count(number: int) -> int:
    return number


@workflow(queue=QUEUE)
async def join(ctx: WorkflowContext, size: int) -> int:
    return sum(await ctx.gather(*(count(number) for number in range(size))))


@job(queue=QUEUE, tries=1)
def refuse() -> None:
    raise ValueError("no such order")


@workflow(queue=QUEUE)
async def despite(ctx: WorkflowContext, diary: str, gate: str, drain: bool) -> dict[str, Any]:
    """One step is dead, the other waits at a gate."""
    beside = hold(diary=diary, name="beside", gate=gate)
    try:
        await ctx.gather(refuse(), beside, on_failure="drain" if drain else "cancel")
    except StepFailed as failure:
        return {"key": failure.key, "kind": failure.kind}
    return {}


@workflow(queue=QUEUE, tries=2, backoff=[0.05])
async def broken(ctx: WorkflowContext, diary: str, divisor: int) -> float:
    first = await ctx.run(double(diary, 4))
    write(diary, "advance", str(divisor))
    return float(first / divisor)


@workflow(queue=QUEUE)
async def cancelled(ctx: WorkflowContext, diary: str, gate: str) -> None:
    """Undoes a step, and cleans up, when it is cancelled."""
    try:
        await ctx.run(double(diary, 1), name="done", compensate=double(diary, 8))
        await ctx.gather(hold(diary=diary, name="running", gate=gate), ctx.sleep(3600))
        await ctx.run(double(diary, 9))
    except Cancelled:
        await ctx.compensate()
        raise
    finally:
        await ctx.step("cleaned", write, diary, "cleaned", "up")


@workflow(queue=QUEUE)
async def naps(ctx: WorkflowContext, times: int) -> int:
    for _ in range(times):
        await ctx.sleep(0.2)
    return times
