"""The console and the command line say the same about delayed jobs, and about paused queues."""

from __future__ import annotations

from datetime import timedelta

from tests.component.console.conftest import Site

from penstock.bus.protocol import Outgoing
from penstock.events.queue import QueuePaused
from penstock.jobs.job_type import NamedJob
from penstock.views.queue_board import queue_rows


async def counts(site: Site) -> tuple[int, int]:
    """As the console's API and as `penstock queue ls` have it."""
    items = (await site.client.get("/api/v1/queues")).json()["items"]
    rows = await queue_rows(site.bus, site.settings)
    return (
        {item["queue"]: item["delayed"] for item in items}["reports"],
        {row.queue: row.delayed for row in rows}["reports"],
    )


async def test_delayed_jobs_are_counted_until_they_end(site: Site) -> None:
    client, subjects = site.console.client, site.subjects
    load = NamedJob("shop.load", queue="reports")
    jobs = [await client.dispatch(load(number=n), delay=timedelta(hours=1)) for n in range(3)]
    stream = subjects.jobs_stream
    kept = await site.bus.last(stream, subjects.schedule("reports", jobs[0]))
    assert kept is not None
    await settled(site)
    assert await counts(site) == (3, 3)
    await client.cancel(jobs[0])
    if await site.bus.last(stream, kept.subject) is None:
        await site.bus.append(Outgoing(kept.subject, kept.body, kept.headers))
    await settled(site)
    assert await counts(site) == (2, 2), "although its schedule is there"


async def settled(site: Site) -> None:
    """The console has folded the whole log."""
    log = await site.bus.extent(site.subjects.events_stream)
    assert await site.console.projection.reached(log.last, 10)


async def test_paused_queues_stand_at_their_pools_everywhere(site: Site) -> None:
    await site.store(QueuePaused(queue="reports", reason="repair"))
    promises = (await site.client.get("/api/v1/promises")).json()["items"]
    assert {one["pool"]: one["paused_queues"] for one in promises} == {
        "reports": ["reports"],
        "imports": [],
    }
    pool = (await site.client.get("/api/v1/pools/reports")).json()
    assert pool["promise"]["paused_queues"] == ["reports"]
