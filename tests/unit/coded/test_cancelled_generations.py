"""Workflows that begin anew again and again, and are cancelled."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.coded.programs import Run, again, interpret
from tests.unit.coded.world import World

from penstock.events.job import JobEvent
from penstock.events.workflow import WorkflowCancelling, WorkflowContinued
from penstock.jobs import Cancelled, WorkflowContext
from penstock.jobs.lifecycle import State
from penstock.jobs.workflows.coded import memo


class CancelledWorld(World):
    """A client cancels the workflow while its first generation runs."""

    def _append(self, event: JobEvent) -> None:
        if isinstance(event, WorkflowContinued) and not self.events(WorkflowCancelling):
            until = self.clock + timedelta(days=1)
            super()._append(WorkflowCancelling(job_id="wf", reason="enough", until=until))
        super()._append(event)


async def forever(ctx: WorkflowContext, index: int = 0) -> None:
    """It awaits nothing else."""
    await ctx.continue_as_new(again(index + 1))


async def forever_tidy(ctx: WorkflowContext, index: int = 0) -> None:
    """It cleans up where it is cancelled."""
    try:
        await ctx.continue_as_new(again(index + 1))
    except Cancelled:
        for number in range(2):
            await interpret(ctx, Run(seconds=5.0, value=number))
        raise


async def forever_deaf(ctx: WorkflowContext, index: int = 0) -> None:
    """It passes over that it is cancelled."""
    try:
        await ctx.continue_as_new(again(index + 1))
    except Cancelled:
        await ctx.continue_as_new(again(index + 1))


@pytest.mark.parametrize("function", [forever, forever_deaf])
def test_cancelled_is_raised_where_it_begins_anew(function: Any) -> None:
    world = CancelledWorld(function)
    assert world.run().state is State.CANCELLED
    assert (world.record.workflow or memo.EMPTY).generation == 1


def test_it_cleans_up_there_whatever_is_killed() -> None:
    undisturbed = CancelledWorld(forever_tidy)
    undisturbed.run()
    assert list(undisturbed.jobs) == ["1:work", "1:work#2"]
    for crash_at in range(2, undisturbed.appends + 1):
        for after in (False, True):
            world = CancelledWorld(forever_tidy, crash_at=crash_at, after=after)
            assert world.run().state is State.CANCELLED
            assert [key.rpartition(":")[2] for key in world.jobs] == ["work", "work#2"]
