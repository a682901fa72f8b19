"""Workflows whose workers die at a chosen moment."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.integration.sample_jobs import QUEUE, hold, write

from penstock.jobs import WorkflowContext, job, workflow


@job(queue=QUEUE, tries=3)
def double(diary: str, number: int) -> int:
    write(diary, "double", str(number))
    return 2 * number


@workflow(queue=QUEUE)
async def approve(ctx: WorkflowContext, diary: str) -> dict[str, Any]:
    first = await ctx.run(double(diary, 1))
    rate = await ctx.step("rate", rate_of, diary)
    joined = await ctx.gather(*(double(diary, number) for number in range(10, 15)))
    await ctx.sleep(timedelta(seconds=0.2))
    approved = await ctx.wait_signal("approved", bool)
    return {"first": first, "rate": rate, "sum": sum(joined), "approved": approved}


def rate_of(diary: str) -> int:
    write(diary, "rate", "recorded")
    return 7


@workflow(queue=QUEUE)
async def hurry(ctx: WorkflowContext, diary: str, gate: str) -> str:
    """Does not wait for a job that waits at a gate."""
    await ctx.race(hold(diary=diary, name="loser", gate=gate), ctx.sleep(0.5))
    return "went on"


@workflow(queue=QUEUE)
async def killed_between(ctx: WorkflowContext, diary: str) -> int:
    """Its worker is killed once: an advance is stored, and none of its steps is dispatched."""
    await ctx.step("doom", doom_dispatch, diary)
    first, second = await ctx.gather(double(diary, 3), double(diary, 4))
    return int(first) + int(second)


def doom_dispatch(diary: str) -> None:
    """Has this process killed where it would dispatch the steps of an advance."""
    from penstock.worker.workflows.suspensions import Suspensions

    async def die(*_: object) -> None:
        write(diary, "worker", "killed")
        os.kill(os.getpid(), signal.SIGKILL)

    Suspensions.dispatch_steps = die  # type: ignore[method-assign,assignment]


@workflow(queue=QUEUE)
async def killed_inside(ctx: WorkflowContext, diary: str) -> int:
    """Its worker is killed once, inside of a step, after another one was recorded."""
    first = await ctx.run(double(diary, 5))
    rate = await ctx.step("rate", rate_of, diary)
    return int(first) + rate + await ctx.step("die", die_once, diary)


def die_once(diary: str) -> int:
    if "inline killed" not in Path(diary).read_text(encoding="utf-8"):
        write(diary, "inline", "killed")
        os.kill(os.getpid(), signal.SIGKILL)
    return 100


@workflow(queue=QUEUE)
async def brief(ctx: WorkflowContext, number: int) -> int:
    return await ctx.step("twice", int.__mul__, number, 2)


@workflow(queue=QUEUE)
async def linger(ctx: WorkflowContext, number: int) -> int:
    """Goes on by a signal, which waits for two more."""
    for _ in range(3):
        number += await ctx.wait_signal("go", int)
    return number


@workflow(queue=QUEUE)
async def rounds(ctx: WorkflowContext, diary: str, left: int) -> str:
    """Begins anew with each signal."""
    value = await ctx.wait_signal("go", int)
    await ctx.run(double(diary, value))
    if left:
        await ctx.continue_as_new(rounds(diary=diary, left=left - 1))
    return "over"
