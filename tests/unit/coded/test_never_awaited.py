"""What is made and never awaited is named with its place; what is awaited later is not."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.coded.test_driver import call, drive, recorded, suspended

from penstock.jobs import StepFailed, WorkflowContext
from penstock.jobs.workflows.coded import memo
from penstock.jobs.workflows.coded.running import never_awaited


@pytest.fixture(autouse=True)
def first_time() -> Iterator[None]:
    never_awaited._SHOWN.clear()
    yield


def warned(workflow: Any, known: Any = memo.EMPTY) -> list[tuple[str, int]]:
    """Method of the context, and line of the function counted from its first."""
    first = workflow.__code__.co_firstlineno
    gc.collect()  # what other tests left must not warn in between
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        driver = drive(workflow, known)
        driver.replay()
        driver.close()
        del driver
        gc.collect()
    assert all(one.filename == __file__ for one in caught)
    return [(str(one.message).split("(")[0], one.lineno - first) for one in caught]


async def forgets(ctx: WorkflowContext) -> None:
    ctx.run(call(1))
    ctx.sleep(5.0)
    await ctx.run(call(2))


async def forgets_at_its_end(ctx: WorkflowContext) -> None:
    first = ctx.run(call(1))
    assert first is not None


async def forgets_to_await_a_join(ctx: WorkflowContext) -> None:
    ctx.gather(call(1), ctx.sleep(1.0))


@pytest.mark.parametrize(
    ("workflow", "places"),
    [
        (forgets, [("ctx.run", 1), ("ctx.sleep", 2)]),
        (forgets_at_its_end, [("ctx.run", 1)]),
        (forgets_to_await_a_join, [("ctx.gather", 1)]),
    ],
)
def test_what_is_never_awaited_is_named(workflow: Any, places: list[tuple[str, int]]) -> None:
    assert warned(workflow) == places


def test_it_is_named_once_however_often_the_code_runs() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            drive(forgets).replay()
    assert len(caught) == 2
    assert "write 'await ctx.run(...)'" in str(caught[0].message)


async def awaits_later(ctx: WorkflowContext) -> None:
    first, second = ctx.run(call(1)), ctx.run(call(2))
    await ctx.sleep(1.0)
    await ctx.gather(first, second, call(3), name="both")


async def loses(ctx: WorkflowContext) -> None:
    later = ctx.run(call(1))
    await ctx.sleep(1_000.0)
    await later


async def is_interrupted(ctx: WorkflowContext) -> None:
    await ctx.race(loses(ctx), ctx.step("now", str))
    later = ctx.run(call(2))
    try:
        await ctx.step("fails", int, "x")
    except StepFailed:
        await later


async def fails(ctx: WorkflowContext) -> None:
    later = ctx.run(call(1))
    raise ValueError(later)


@pytest.mark.parametrize("workflow", [awaits_later, loses, is_interrupted])
def test_what_waits_to_be_awaited_is_not_named(workflow: Any) -> None:
    assert warned(workflow) == []


def test_nor_is_it_where_the_workflow_goes_on() -> None:
    driver = drive(awaits_later)
    driver.replay()
    known = recorded(suspended(driver))
    driver.close()
    assert warned(awaits_later, known) == []


def test_nor_is_what_an_error_left_behind() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="RunJob"):
            drive(fails).replay()
        gc.collect()
