"""Running one call to its end in this process."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.jobs import Call, WorkflowContext, job, workflow
from penstock.testing import RunFailed, run_inline, run_inline_async

ATTEMPTS: list[int] = []


@job(queue="numbers", tries=3, backoff=[60.0])
def double(number: int) -> int:
    ATTEMPTS.append(number)
    if len(ATTEMPTS) < 3:
        raise ConnectionError("not yet")
    return number * 2


@workflow()
async def below(ctx: WorkflowContext, number: int) -> int:
    await ctx.sleep(timedelta(days=3))
    return int(await ctx.run(double(number=number)))


@workflow()
async def above(ctx: WorkflowContext, number: int) -> list[Any]:
    doubled = await ctx.run(below(number=number))
    approved = await ctx.wait_signal("approved", bool)
    return [doubled, approved]


def test_a_workflow_runs_with_its_timers_retries_and_workflows_below() -> None:
    ATTEMPTS.clear()
    assert run_inline(above(number=4), signals={"approved": True}) == [8, True]
    assert ATTEMPTS == [4, 4, 4]


def test_a_plain_job_runs_too() -> None:
    ATTEMPTS[:] = [0, 0]
    assert run_inline(double(number=5)) == 10


@workflow(tries=1)
async def faulty(ctx: WorkflowContext) -> None:
    raise ValueError("no such order")


@workflow()
async def changing(ctx: WorkflowContext) -> None:
    ATTEMPTS.append(0)
    await ctx.run(double(number=len(ATTEMPTS)))


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (faulty(), "builtins.ValueError", "no such order"),
        (above(number=1), "stuck", "waits for signal 'approved'"),
        (changing(), "stuck", "recorded under 'double'"),
    ],
)
def test_what_does_not_complete_is_an_error(call: Call, kind: str, text: str) -> None:
    ATTEMPTS[:] = [0, 0]
    with pytest.raises(RunFailed, match=text) as failed:
        run_inline(call)
    assert failed.value.kind == kind


async def test_in_an_event_loop_it_is_awaited() -> None:
    ATTEMPTS[:] = [0, 0]
    with pytest.raises(RuntimeError, match="run_inline_async"):
        run_inline(double(number=1))
    assert await run_inline_async(double(number=1)) == 2
