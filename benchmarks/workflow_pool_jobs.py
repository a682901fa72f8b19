"""The workflow of `workflow_pools.py`: its steps lie in three pools."""

from __future__ import annotations

import time

from penstock.jobs import WorkflowContext, job, workflow

CARDS, STOCK, LABELS, FLOWS = "cards", "stock", "labels", "workflows"


@job(queue=CARDS)
def charge(seconds: float) -> None:
    time.sleep(seconds)


@job(queue=STOCK)
def reserve(seconds: float) -> None:
    time.sleep(seconds)


@job(queue=LABELS)
def print_label(seconds: float) -> None:
    time.sleep(seconds)


@workflow(queue=FLOWS)
async def fulfil(ctx: WorkflowContext, seconds: float) -> None:
    await ctx.gather(charge(seconds), reserve(seconds))
    await ctx.run(print_label(3 * seconds))
