"""History that is older than it may be leaves the log; what is younger stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from penstock.config.load import check
from penstock.jobs import State, job
from penstock.jobs.errors import NotFound
from penstock.orchestrator.app import Orchestrator
from penstock.orchestrator.core.pace import KEPT_AGE, Pace
from penstock.orchestrator.retention.history import History
from penstock.runtime.service import Service
from penstock.testing import Bench

DAYS = 30
MAX_AGE_DAYS = 14


@job(queue="history-age")
def work(n: int) -> int:
    return n


@asynccontextmanager
async def shortening(bench: Bench) -> AsyncIterator[History]:
    """The history of an orchestrator that follows the log, and shortens it when it is asked to."""
    orchestrator = Orchestrator(Service("orchestrator", bench.settings, bench.bus))
    following = asyncio.create_task(orchestrator.workflows.follow())
    try:
        yield orchestrator.history
    finally:
        following.cancel()


async def ages_of_the_left(bench: Bench, ids: list[str]) -> list[int]:
    """Age in days of each job whose end is in the log."""
    left = []
    for age, job_id in enumerate(reversed(ids), 1):
        try:
            view = await bench.client.job(job_id)
        except NotFound:
            continue
        assert view.state is State.COMPLETED
        left.append(age)
    return left


async def test_a_small_log_loses_its_old_end_and_no_more() -> None:
    bench = Bench(check({"streams": {"events_max_age_days": MAX_AGE_DAYS}}))
    ids: list[str] = []
    for day in range(DAYS):
        ids.append(await bench.client.dispatch(work(n=day)))
        await bench.run_pending()
        await bench.advance(timedelta(days=1))
    async with shortening(bench) as history:
        await history.shorten()
        assert await ages_of_the_left(bench, ids) == list(range(1, MAX_AGE_DAYS))
        assert await history.shorten() == 0
        await bench.advance(timedelta(days=2))
        await history.shorten()
        assert await ages_of_the_left(bench, ids) == list(range(1, MAX_AGE_DAYS - 2))


async def test_a_log_that_needs_space_loses_what_is_young_too() -> None:
    limits = {"events_max_bytes": 1_000_000, "events_max_age_days": MAX_AGE_DAYS}
    bench = Bench(check({"streams": limits}))
    ids = []
    while (await bench.bus.extent(bench.bus.subjects.events_stream)).bytes < 950_000:
        ids += await bench.client.dispatch_many([work(n=n) for n in range(200)])
        await bench.run_pending()
    async with shortening(bench) as history:
        assert await history.shorten() > 0
    extent = await bench.bus.extent(bench.bus.subjects.events_stream)
    assert 400_000 < extent.bytes <= 750_000
    assert await ages_of_the_left(bench, ids)


@pytest.mark.parametrize(
    ("held", "age_seconds", "is_due", "needs_space"),
    [(91, 1.0, True, True), (89, 1.0, False, False), (10, 101.0, True, False)],
)
def test_a_pass_begins_for_space_or_for_age(
    held: int, age_seconds: float, is_due: bool, needs_space: bool
) -> None:
    pace = Pace(100, 100.0)
    assert pace.is_due(held, age_seconds, 0.0) is is_due
    assert pace.needs_space(held, 0.0) is needs_space
    assert pace.kept_seconds == 100.0 * KEPT_AGE
