"""What the orchestrator sees of a workflow while it reads the same workflow is not lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.jobs import WorkflowContext, derived_ids, job, workflow
from penstock.orchestrator.workflows.suspended.suspended_workflows import SuspendedWorkflows
from penstock.testing import Bench
from penstock.testing.memory.bus import MemoryBus


@pytest.fixture
def penstock() -> Bench:
    return Bench()


@job(queue="stock")
def reserve(order: int) -> int:
    return order


@workflow()
async def reserves_later(ctx: WorkflowContext) -> int:
    return await ctx.run(reserve(order=1), delay=3600)


def follow(bench: Bench, suspended: SuspendedWorkflows) -> None:
    stored = bench.bus.stored(bench.bus.subjects.events_stream, ">")
    for message in sorted(stored, key=lambda one: one.sequence):
        suspended.see(message)


def woken(bench: Bench) -> int:
    subjects = bench.bus.subjects
    return len(bench.bus.stored(subjects.jobs_stream, subjects.queue("workflows")))


def once_behind(
    monkeypatch: pytest.MonkeyPatch, method: str, about: str, happens: Callable[[], Awaitable[None]]
) -> None:
    """Has something happen right behind the broker's next answer.

    Args:
        about: a part of what is asked for.
    """
    answered = getattr(MemoryBus, method)

    async def answer(bus: MemoryBus, stream: str, asked: Any, *args: Any) -> Any:
        result = await answered(bus, stream, asked, *args)
        if about in str(asked):
            monkeypatch.setattr(MemoryBus, method, answered)
            await happens()
        return result

    monkeypatch.setattr(MemoryBus, method, answer)


async def test_a_step_that_ends_while_steps_are_read_wakes_its_workflow(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow_id = await penstock.client.dispatch(reserves_later())
    await penstock.run_pending()
    suspended = SuspendedWorkflows(penstock.bus, penstock.bus.subjects, penstock.client)
    follow(penstock, suspended)
    await suspended.round(now := penstock.bus.now())
    suspended.compare([workflow_id])

    async def ends() -> None:
        await penstock.client.cancel(derived_ids.step_id(workflow_id, 0))
        follow(penstock, suspended)

    once_behind(monkeypatch, "last_of", "JobCancelled", ends)
    await suspended.round(now)
    await suspended.round(now)
    assert woken(penstock) == 1


async def test_one_that_is_paused_while_it_is_read_is_not_woken(
    penstock: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow_id = await penstock.client.dispatch(reserves_later())
    await penstock.run_pending()
    await penstock.client.cancel(derived_ids.step_id(workflow_id, 0))
    suspended = SuspendedWorkflows(penstock.bus, penstock.bus.subjects, penstock.client)
    follow(penstock, suspended)
    suspended.compare([workflow_id])

    async def is_paused() -> None:
        await penstock.client.workflows.pause(workflow_id)
        follow(penstock, suspended)

    once_behind(monkeypatch, "history", workflow_id, is_paused)
    for _ in range(3):
        await suspended.round(penstock.bus.now())
    assert woken(penstock) == 0
