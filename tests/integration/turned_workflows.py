"""Workflows of the tests of a log that turns over."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.integration.turned_jobs import hold, note

from penstock.jobs import Context, StepFailed, WorkflowContext, job, workflow

_QUEUE = "turned"


def noted(diary: str, line: str) -> str:
    """An inline step."""
    with Path(diary).open("a") as file:
        file.write(f"{line}\n")
    return line


def is_there(path: str) -> bool:
    return Path(path).exists()


@workflow(queue=_QUEUE)
async def patient(ctx: WorkflowContext, diary: str, gate: str) -> dict[str, Any]:
    """Waits for a join of which one result is in, then for three signals, then for a time."""
    rate = await ctx.step("rate", noted, diary, "rate")
    joined = await ctx.gather(
        note(diary=diary, line="first"), hold(diary=diary, line="second", gate=gate)
    )
    signals = [await ctx.wait_signal("go", int) for _ in range(3)]
    await ctx.sleep(timedelta(seconds=0.1))
    return {"rate": rate, "joined": joined, "signals": signals}


@workflow(queue=_QUEUE)
async def asleep(ctx: WorkflowContext, diary: str, seconds: float) -> str:
    await ctx.run(note(diary=diary, line="before"))
    await ctx.sleep(timedelta(seconds=seconds))
    return await ctx.run(note(diary=diary, line="after"))


@job(queue=_QUEUE, tries=1)
def refuse(context: Context) -> None:
    raise ValueError("refused")


@workflow(queue=_QUEUE)
async def drained(ctx: WorkflowContext, diary: str, gate: str) -> str:
    """One of its steps is dead long before the other ends."""
    try:
        await ctx.gather(refuse(), hold(diary=diary, line="held", gate=gate), on_failure="drain")
    except StepFailed as failure:
        return failure.kind
    return "none failed"


@workflow(queue=_QUEUE, tries=1)
async def needs_mending(ctx: WorkflowContext, diary: str, mended: str) -> str:
    """Dies until a file is there; what it recorded before must not run again."""
    first = await ctx.run(note(diary=diary, line="first"))
    await ctx.step("inline", noted, diary, "inline")
    value = await ctx.wait_signal("go", int)
    if not is_there(mended):
        raise RuntimeError("not mended yet")
    return f"{first} {value} {await ctx.wait_signal('go', int)}"


def page(number: int, size: int) -> str:
    """A large inline result."""
    return chr(ord("a") + number) * size


@workflow(queue=_QUEUE)
async def collected(ctx: WorkflowContext, pages: int, size: int) -> list[str]:
    """Holds more than one event does while it waits."""
    taken = [await ctx.step("page", page, number, size) for number in range(pages)]
    await ctx.wait_signal("go", int)
    return [text[0] for text in taken if len(text) == size]


@workflow(queue=_QUEUE)
async def mapped(ctx: WorkflowContext, diary: str, gate: str) -> int:
    """A batch ends long before the job beside it."""
    batch, _ = await ctx.gather(
        ctx.map(note(diary=diary, line=f"member {number}") for number in range(3)),
        hold(diary=diary, line="held", gate=gate),
    )
    return int(batch.completed)
