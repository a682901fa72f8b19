"""Workflows that begin anew with other arguments, from end to end in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from penstock.events.workflow import WorkflowContinued
from penstock.jobs import State, WorkflowContext, WorkflowError, job, workflow
from penstock.testing import Bench, RunFailed, run_inline

SEEN: list[Any] = []


@pytest.fixture
def penstock() -> Iterator[Bench]:
    SEEN.clear()
    yield Bench()


@job(queue="pages")
def fetch(page: int) -> int:
    SEEN.append(page)
    return page * 10


@workflow()
async def poll(ctx: WorkflowContext, page: int, last: int, total: int = 0) -> list[int]:
    total += await ctx.run(fetch(page=page))
    if page < last:
        await ctx.sleep(1)
        await ctx.continue_as_new(poll(page=page + 1, last=last, total=total))
    return [page, total]


async def test_it_goes_on_under_its_id_with_nothing_recorded(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(poll(page=1, last=4))
    for _ in range(4):
        await penstock.run_pending()
        await penstock.advance(2)
    view = await penstock.client.workflows.get(workflow_id)
    assert view.job.result == [4, 100]
    assert (view.generation, view.advances) == (3, 1)
    assert [step.key for step in view.steps] == ["fetch"]
    assert SEEN == [1, 2, 3, 4]
    kinds = [type(event) for _, event in view.job.events]
    assert kinds.count(WorkflowContinued) == 3
    penstock.assert_dispatched_times(fetch, 4)


@workflow()
async def collect(ctx: WorkflowContext, rounds: int) -> None:
    SEEN.append(await ctx.wait_signal("item"))
    if rounds > 1:
        await ctx.continue_as_new(collect(rounds=rounds - 1))


async def test_signals_that_were_not_read_are_kept_and_others_do_not_come_again(
    penstock: Bench,
) -> None:
    workflow_id = await penstock.client.dispatch(collect(rounds=5))
    for value in (1, 2, 3):
        await penstock.client.workflows.signal(workflow_id, "item", value)
    await penstock.client.workflows.signal(workflow_id, "other", 0)
    await penstock.run_pending()
    assert SEEN == [1, 2, 3]
    for value in (4, 5):
        await penstock.client.workflows.signal(workflow_id, "item", value)
        await penstock.run_pending()
    assert SEEN == [1, 2, 3, 4, 5]
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED


@workflow()
async def racing(ctx: WorkflowContext, again: bool) -> None:
    await ctx.race(ctx.sleep(1), ctx.run(slow(number=1)))
    if again:
        await ctx.continue_as_new(racing(again=False))


@workflow()
async def slow(ctx: WorkflowContext, number: int) -> None:
    await ctx.wait_signal("never")


async def test_steps_that_are_left_behind_are_cancelled(penstock: Bench) -> None:
    workflow_id = await penstock.client.dispatch(racing(again=True))
    for _ in range(3):
        await penstock.run_pending()
        await penstock.advance(2)
    await penstock.run_pending()
    assert (await penstock.client.job(workflow_id)).state is State.COMPLETED
    for number in (0, 1, 2, 3):
        try:
            step = await penstock.client.job(f"{workflow_id}_step_{number}")
        except Exception:
            continue
        assert step.state is State.CANCELLED


@workflow()
async def lucky(ctx: WorkflowContext, again: bool) -> None:
    SEEN.append(ctx.uuid())
    if again:
        await ctx.continue_as_new(lucky(again=False))


async def test_chance_is_another_in_each_generation(penstock: Bench) -> None:
    await penstock.client.dispatch(lucky(again=True))
    await penstock.run_pending()
    first, second = SEEN
    assert isinstance(first, UUID)
    assert first != second


@workflow()
async def parent(ctx: WorkflowContext) -> list[int]:
    return list(await ctx.run(poll(page=1, last=3)))


def test_a_workflow_above_waits_for_the_last_generation() -> None:
    assert run_inline(parent()) == [3, 60]


async def elsewhere(ctx: WorkflowContext) -> None:
    await ctx.continue_as_new(lucky(again=False))


@workflow(tries=1)
async def wrong(ctx: WorkflowContext, below: bool) -> None:
    if below:
        await ctx.gather(elsewhere(ctx))
    await ctx.continue_as_new(lucky(again=False))


@pytest.mark.parametrize(
    ("below", "text"), [(True, "own function"), (False, "expected one of .*wrong")]
)
def test_what_cannot_begin_anew_is_an_error(below: bool, text: str) -> None:
    with pytest.raises(RunFailed, match=text) as failed:
        run_inline(wrong(below=below))
    assert failed.value.kind.endswith(WorkflowError.__name__)


@workflow()
async def endless(ctx: WorkflowContext, steps: int) -> int:
    for _ in range(6):
        await ctx.sleep(0.001)
        steps += 1
    if steps < 30:
        await ctx.continue_as_new(endless(steps=steps))
    return steps


def test_the_limit_of_steps_holds_for_one_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.jobs.workflows.coded.running.unrecorded.MAX_STEPS", 8)
    assert run_inline(endless(steps=0)) == 30
