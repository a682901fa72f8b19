"""Workflows whose workers die while a batch is filled, and while they clean up."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from tests.integration.sample_jobs import QUEUE, hold, write
from tests.integration.workflow_jobs import double

from penstock.jobs import Call, WorkflowContext, job, workflow


def die_once(diary: str, name: str) -> None:
    """Kills this process; once for each name."""
    path = Path(diary)
    if not path.exists() or f"{name} killed" not in path.read_text(encoding="utf-8"):
        write(diary, name, "killed")
        os.kill(os.getpid(), signal.SIGKILL)


# --- a batch --------------------------------------------------------------------------------------
@job(queue=QUEUE)
def member(diary: str, number: int) -> None:
    write(diary, "member", str(number))


@workflow(queue=QUEUE)
async def fill(ctx: WorkflowContext, diary: str, size: int, fatal: int) -> list[int]:
    """A batch whose worker dies when so many of its jobs were made."""
    counts = await ctx.map(_members(diary, size, fatal))
    return [counts.completed, counts.failed, counts.cancelled]


def _members(diary: str, size: int, fatal: int) -> Iterator[Call]:
    for number in range(size):
        if number == fatal:
            die_once(diary, "filling")
        yield member(diary=diary, number=number)


# --- cleaning up ----------------------------------------------------------------------------------
@job(queue=QUEUE, tries=3)
def undo(diary: str, number: int) -> None:
    """Its process dies before it has undone anything, once for each number."""
    die_once(diary, f"undo-{number}")
    write(diary, "undone", str(number))


@workflow(queue=QUEUE)
async def outer(ctx: WorkflowContext, diary: str, gate: str) -> None:
    """Undoes its own step beside the workflow below it, which does likewise; ends after it."""
    try:
        await ctx.run(double(diary, 1), compensate=undo(diary, 1))
        await ctx.run(inner(diary, gate))
    finally:
        await ctx.compensate()
        await ctx.step("left", write, diary, "left", "outer")


@workflow(queue=QUEUE)
async def inner(ctx: WorkflowContext, diary: str, gate: str) -> None:
    try:
        await ctx.run(double(diary, 2), compensate=undo(diary, 2))
        await ctx.run(hold(diary=diary, name="running", gate=gate))
    finally:
        await ctx.compensate()
        await ctx.step("left", _leave, diary)


def _leave(diary: str) -> None:
    die_once(diary, "leaving")
    write(diary, "left", "inner")
