"""Delayed are jobs that start later, not what else the broker keeps a schedule for."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock.config import Settings
from penstock.jobs import WorkflowContext, job, workflow
from penstock.testing import Bench
from penstock.views import delayed_jobs
from penstock.views.queue_board import queue_rows


@job(queue="parcels", name="delayed.pack")
def pack() -> None: ...


@workflow(name="delayed.ship", queue="parcels")
async def ship(ctx: WorkflowContext) -> None:
    await ctx.wait_signal("go", bool, timeout=timedelta(days=7))


async def delayed(penstock: Bench) -> int:
    rows = await queue_rows(penstock.bus, Settings())
    return {row.queue: row.delayed for row in rows}["parcels"]


async def test_scheduled_jobs_are_delayed() -> None:
    penstock = Bench()
    await penstock.client.dispatch(pack(), delay=timedelta(hours=1))
    await penstock.client.dispatch(pack(), delay=timedelta(hours=2))
    await penstock.run_pending()
    assert await delayed(penstock) == 2


@pytest.mark.parametrize("ends", [False, True])
async def test_a_workflow_that_waits_for_its_timer_or_ended_before_it_is_not(ends: bool) -> None:
    penstock = Bench()
    workflow_id = await penstock.client.dispatch(ship())
    await penstock.run_pending()
    if ends:
        await penstock.client.workflows.signal(workflow_id, "go", True)
        await penstock.run_pending()
    pattern = penstock.bus.subjects.schedule("*", "*")
    stored = await penstock.bus.count(penstock.bus.subjects.jobs_stream, pattern)
    assert sum(stored.values()) == 1, "the broker keeps its timer"
    assert await delayed(penstock) == 0


async def test_of_very_many_all_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_jobs, "MOST_READ", 1)
    penstock = Bench()
    await penstock.client.dispatch(ship())
    await penstock.client.dispatch(pack(), delay=timedelta(hours=1))
    await penstock.run_pending()
    assert await delayed(penstock) == 2
