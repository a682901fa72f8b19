"""The promise as the metrics service measures it: ages along the line, and the error budget."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.buses import both
from tests.integration.measured import Stage, known
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.worker import QueueReport

STRICT = {"reports": {"min_workers": 0, "sla_seconds": 0.5, "quantile": 0.9}}
EASY = {"reports": {"min_workers": 0, "sla_seconds": 1000.0}}


@pytest.fixture(params=both("nats"))
async def stage(request: pytest.FixtureRequest, settings: MakeSettings) -> AsyncIterator[Stage]:
    found = Stage(request.param, settings)
    yield found
    await found.close()


async def test_ages_are_those_of_the_stored_messages(stage: Stage) -> None:
    await stage.start(pools=STRICT)
    await stage.seen(waiting=0)
    await stage.job(count=50)
    await stage.seen(waiting=50, oldest_waiting_seconds=lambda age: age and age > 0.4)
    await stage.job(count=50)
    found = await stage.seen(
        within=10,
        waiting=100,
        waiting_ages_seconds=lambda ages: len(ages) == 5 and ages[4] < ages[0] - 0.2,
    )
    oldest, second, _, fourth, newest = found.waiting_ages_seconds
    assert oldest == found.oldest_waiting_seconds
    assert second > oldest - 0.1  # of the first fifty, which came at once
    assert newest <= fourth < oldest - 0.2
    assert found.waiting_jobs[0].id == "reports-0"
    assert found.waiting_jobs[0].waited_seconds == oldest
    assert found.waiting_jobs[-1].id == "reports-49"


async def test_who_waits_too_long_spends_the_budget_before_being_picked_up(stage: Stage) -> None:
    await stage.start(pools=STRICT)
    full = await stage.seen(waiting=0)
    assert (full.budget.jobs, full.budget.remaining_share) == (0, 1.0)
    await stage.job(count=20)
    found = await stage.seen(within=10, budget=lambda budget: budget.waiting_late == 20)
    assert found.budget.remaining_share == pytest.approx(1 - 20 / 2)


async def test_a_young_line_is_not_looked_up(stage: Stage) -> None:
    await stage.start(pools=EASY)
    await stage.job(count=20)
    await stage.seen(waiting=20, oldest_waiting_seconds=lambda age: age and age > 1.2)
    assert not any(snapshot.waiting_ages_seconds for snapshot in stage.snapshots)


async def test_the_budget_is_counted_by_workers_and_outlives_the_service(stage: Stage) -> None:
    await stage.start(pools=STRICT)
    await stage.seen(waiting=0)
    await stage.report(1, queues={"reports": QueueReport(started=90, late=3)})
    await stage.report(1, queues={"reports": QueueReport(started=90, late=3)})  # twice: once
    await stage.report(2, queues={"reports": QueueReport(started=10, late=2)})
    counted = await stage.seen(budget=lambda budget: budget.jobs == 100)
    assert (counted.budget.late, counted.budget.remaining_share) == (5, pytest.approx(0.5))
    await stage.stop()
    before = len(stage.snapshots)
    await stage.start(pools=STRICT)
    await eventually(lambda: len(stage.snapshots) > before, 5)
    again = stage.snapshots[before].budget
    assert (again.jobs, again.late) == (100, 5)
    assert again.parts == counted.budget.parts


async def test_a_broker_that_is_slow_with_lines_holds_up_nothing(stage: Stage) -> None:
    class Stuck:
        """A bus that never answers about the jobs of a line."""

        def __init__(self, bus) -> None:
            self._bus = bus

        def __getattr__(self, name):
            return getattr(self._bus, name)

        async def history(self, stream, *rest):
            if stream != stage.subjects.jobs_stream:
                return await self._bus.history(stream, *rest)
            return await asyncio.Event().wait()

    await stage.start(pools=STRICT, wrap=Stuck)
    await stage.job(count=20)
    await stage.seen(waiting=20, oldest_waiting_seconds=lambda age: age and age > 0.5)
    found = await stage.seen(arrival_per_second=known)
    assert (found.waiting, found.waiting_ages_seconds) == (20, ())
