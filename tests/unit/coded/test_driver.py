"""Given a memo and the code of a workflow: what it asks for next."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.coded.programs import work
from tests.unit.coded.world import START

from penstock.events.workflow_memo import (
    InlineResult,
    MemoEntry,
    Resolution,
    ScheduledStep,
    WaitGroup,
    WorkflowMemo,
)
from penstock.jobs import StepFailed, WorkflowContext, WorkflowError
from penstock.jobs.job_type import encode_result
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.coded.running.driver import Driver
from penstock.jobs.workflows.coded.running.nodes import Calls, Diverged, Ended, Quiet, Suspension


def drive(workflow: Any, known: WorkflowMemo = memo.EMPTY) -> Driver:
    return Driver(lambda driver: workflow(WorkflowContext(driver, "wf")), known, START)


def suspended(driver: Driver) -> Suspension:
    return driver.suspend(lambda n, command: b"call")


def recorded(first: Suspension, *consumed: Resolution) -> WorkflowMemo:
    """A memo of one advance, and of what the next one took note of."""
    scheduled = MemoEntry(now=START, scheduled=first.scheduled)
    return WorkflowMemo(entries=(scheduled, MemoEntry(now=START, consumed=consumed)))


def completed(key: str, value: Any = None) -> Resolution:
    return Resolution(key=key, outcome="completed", value=encode_result(value))


def step(n: int, key: str, digest: str = "", kind: Any = "job") -> ScheduledStep:
    return ScheduledStep(n=n, key=key, kind=kind, digest=digest)


def call(value: int = 1) -> Any:
    return work(1.0, value, False)


# --- keys -----------------------------------------------------------------------------------------
async def branches(ctx: WorkflowContext) -> None:
    await ctx.gather(call(1), call(2), one_branch(ctx), ctx.run(call(3), name="third"))


async def one_branch(ctx: WorkflowContext) -> None:
    await ctx.run(call(4))


def test_keys_are_names_in_scopes() -> None:
    driver = drive(branches)
    assert isinstance(driver.replay(), Quiet)
    keys = [scheduled.key for scheduled in suspended(driver).scheduled]
    assert keys == ["gather/work", "gather/work#2", "gather/third", "gather/one_branch/work"]


def test_a_name_with_the_separator_of_scopes_is_refused() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.run(call(), name="gather/work")

    with pytest.raises(WorkflowError, match="has no '/'"):
        drive(workflow).replay()


# --- waiting --------------------------------------------------------------------------------------
def test_a_join_waits_for_all_of_its_steps_or_one_that_fails() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.gather(call(1), call(2))

    driver = drive(workflow)
    driver.replay()
    assert suspended(driver).wait == (WaitGroup((0, 1), or_any_failed=True),)


def test_a_race_waits_for_any() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.race(call(1), ctx.sleep(60))

    driver = drive(workflow)
    driver.replay()
    assert suspended(driver).wait == (WaitGroup((0,)), WaitGroup((1,)))
    assert suspended(driver).due_at == START + timedelta(seconds=60)


def test_the_losers_of_a_race_are_given_up() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.race(call(1), call(2))
        await ctx.run(call(3))

    driver = drive(workflow)
    driver.replay()
    first = suspended(driver)
    driver = drive(
        workflow, WorkflowMemo(entries=(MemoEntry(now=START, scheduled=first.scheduled),))
    )
    driver.replay()
    driver.resolve(completed("race/work#2", 5))
    assert suspended(driver).cancelled == (0,)


# --- replaying ------------------------------------------------------------------------------------
def test_recorded_results_are_returned_at_once() -> None:
    async def workflow(ctx: WorkflowContext) -> int:
        return int(await ctx.run(call())) + 1

    first = drive(workflow)
    first.replay()
    driver = drive(workflow, recorded(suspended(first)))
    assert isinstance(driver.replay(), Quiet)
    assert driver.resolve(completed("work", 41)) == Ended(42)


def test_an_inline_step_runs_once() -> None:
    async def workflow(ctx: WorkflowContext) -> Any:
        return await ctx.step("rate", encode_result, 1)

    state = drive(workflow).replay()
    assert isinstance(state, Calls) and state.key == "rate"
    result = InlineResult("rate", "encode_result", encode_result("recorded"))
    known = WorkflowMemo(entries=(MemoEntry(now=START, inline=result),))
    assert drive(workflow, known).replay() == Ended("recorded")


def test_a_failed_step_is_raised_at_its_await() -> None:
    async def workflow(ctx: WorkflowContext) -> str:
        try:
            await ctx.run(call())
        except StepFailed as error:
            return error.key
        return ""

    driver = drive(workflow)
    driver.replay()
    assert driver.resolve(Resolution(key="work", outcome="failed")) == Ended("work")


@pytest.mark.parametrize(
    ("scheduled", "said"),
    [
        ([step(0, "renamed")], "'renamed', the code does not call it"),
        ([step(0, "work", "other()")], "job other(), the code calls job tests.programs.work"),
        ([], "the code calls 'work', which was not recorded"),
        ([step(0, "work", kind="timer")], "recorded under 'work' is timer"),
    ],
)
def test_other_code_than_recorded_diverges(scheduled: list[ScheduledStep], said: str) -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.run(call())

    known = WorkflowMemo(entries=(MemoEntry(now=START, scheduled=tuple(scheduled)),))
    with pytest.raises(Diverged) as difference:
        drive(workflow, known).replay()
    assert said in str(difference.value)


def test_code_that_ends_too_early_diverges() -> None:
    async def workflow(ctx: WorkflowContext) -> None: ...

    known = WorkflowMemo(entries=(MemoEntry(now=START, scheduled=(step(0, "work"),)),))
    with pytest.raises(Diverged, match="the code ends where recorded is a suspension"):
        drive(workflow, known).replay()


def test_code_that_begins_anew_too_early_diverges() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.continue_as_new(call())

    known = WorkflowMemo(entries=(MemoEntry(now=START, scheduled=(step(0, "work"),)),))
    with pytest.raises(Diverged, match="the code begins anew where recorded is a suspension"):
        drive(workflow, known).replay()


# --- time, chance, status -------------------------------------------------------------------------
def test_time_and_chance_are_the_same_each_time() -> None:
    async def workflow(ctx: WorkflowContext) -> Any:
        drawn = [ctx.uuid(), ctx.uuid(), ctx.random().random(), ctx.random().random()]
        return [ctx.now(), *drawn]

    first, second = drive(workflow).replay(), drive(workflow).replay()
    assert isinstance(first, Ended) and first == second
    assert len(set(first.value)) == 5


def test_a_status_is_bounded() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        ctx.set_status(stage="x" * 501)

    with pytest.raises(WorkflowError, match="set_status"):
        drive(workflow).replay()


# --- what is refused ------------------------------------------------------------------------------
@pytest.mark.parametrize("part", [5, None, "text"])
def test_what_cannot_run_beside_others_is_refused(part: Any) -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.gather(call(), part)

    with pytest.raises(WorkflowError, match="expected a call of a job"):
        drive(workflow).replay()


class Foreign:
    def __await__(self) -> Any:
        yield "something else"


def test_a_foreign_await_is_refused_also_where_the_code_cleans_up() -> None:
    async def flow(ctx: WorkflowContext) -> None:
        try:
            await asyncio.sleep(0)
        finally:
            await ctx.sleep(timedelta(seconds=1))

    with pytest.raises(WorkflowError, match=r"test_driver\.py:\d+: awaits"):
        drive(flow).replay()


@pytest.mark.parametrize("foreign", [Foreign, lambda: asyncio.sleep(1)])
def test_a_foreign_await_is_refused_with_its_place(foreign: Any) -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await foreign()

    with pytest.raises(WorkflowError) as refused:
        drive(workflow).replay()
    line = workflow.__code__.co_firstlineno + 1
    assert f"{__file__}:{line}: " in str(refused.value)
    assert "ctx.run(job(...))" in str(refused.value)


def test_asyncio_beside_the_context_is_refused_in_a_thread_without_a_loop() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await asyncio.gather(ctx.sleep(1), ctx.sleep(2))

    with ThreadPoolExecutor(1) as thread, pytest.raises(WorkflowError, match=r"ctx\.gather"):
        thread.submit(drive(workflow).replay).result()


def test_a_call_that_is_awaited_itself_is_an_error_that_shows_how() -> None:
    async def workflow(ctx: WorkflowContext) -> None:
        await call()  # type: ignore[misc]

    with pytest.raises(TypeError, match=r"'await ctx\.run\(\w+\(\.\.\.\)\)' in a workflow"):
        drive(workflow).replay()


def test_an_await_in_a_part_that_is_given_up_is_refused() -> None:
    async def stubborn(ctx: WorkflowContext) -> None:
        try:
            await ctx.run(call(1))
        finally:
            await ctx.run(call(2))

    async def workflow(ctx: WorkflowContext) -> None:
        await ctx.race(stubborn(ctx), ctx.run(call(3), name="winner"))

    driver = drive(workflow)
    driver.replay()
    with pytest.raises(WorkflowError, match="was given up and awaits"):
        driver.resolve(completed("race/winner", 1))


# --- limits ---------------------------------------------------------------------------------------
async def pages(ctx: WorkflowContext, count: int = 3) -> None:
    for _ in range(count):
        await ctx.step("page", str)


def page(number: int, size: int) -> InlineResult:
    key = "page" if number == 1 else f"page#{number}"
    return InlineResult(key, "str", encode_result("x" * size))


def test_what_a_workflow_records_is_bounded() -> None:
    driver = drive(pages)
    assert isinstance(driver.replay(), Calls)
    assert isinstance(driver.record(page(1, 3_000_000), START), Calls)
    with pytest.raises(WorkflowError, match="at most 8,000,000 bytes"):
        driver.record(page(2, 3_500_000), START)


def test_inline_steps_are_bounded() -> None:
    entries = tuple(MemoEntry(now=START, inline=page(n, 1)) for n in range(1, 10_002))

    async def many(ctx: WorkflowContext) -> None:
        await pages(ctx, 10_002)

    assert isinstance(drive(many, WorkflowMemo(entries=entries[:-1])).replay(), Calls)
    with pytest.raises(WorkflowError, match="at most 10,000 inline steps"):
        drive(many, WorkflowMemo(entries=entries)).replay()
