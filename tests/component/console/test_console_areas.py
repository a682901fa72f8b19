"""Failures as groups, workflows with their steps, batches, capacity, charts: as pages show them."""

from __future__ import annotations

import html
import re
import time
from datetime import UTC, datetime

from tests.component.console.conftest import Site
from tests.component.console.test_console_api import died, dispatched, get
from tests.component.console.test_console_pages import page

from penstock.console.core.series import COLUMNS, Series
from penstock.events.batch import BatchCreated
from penstock.events.graph import GraphStarted, GraphStep
from penstock.events.snapshot import HostSnapshot, PoolSnapshot
from penstock.operations.settings_in_force import Announcer


async def test_jobs_that_died_of_the_same_are_one_failure(site: Site) -> None:
    for number, message in ((1, "order 17 timed out"), (2, "order 18 timed out"), (3, "no disk")):
        await site.store(dispatched(number), *died(number, message))
    text = await page(site, "/failures")
    prints = re.findall(r'<a href="/failures/([0-9a-f]{12})"', text)
    assert len(prints) == 2
    (same,) = [one for one in prints if "job-001" in await page(site, f"/failures/{one}")]
    shown = await page(site, f"/failures/{same}")
    assert "job-002" in shown
    assert "job-003" not in shown
    assert f"penstock dead retry --all --fingerprint {same}" in shown
    jobs = await page(site, f"/jobs?q=state:dead%20failure:{same}")
    assert jobs.count("data-open") == 2


async def test_a_failure_without_dead_jobs_has_no_page(site: Site) -> None:
    assert "died of the failure" in await page(site, "/failures/gone", status=404)


async def test_a_graph_is_drawn_with_what_it_waits_for(site: Site) -> None:
    steps = (
        GraphStep(name="extract", payload=b""),
        GraphStep(name="load", payload=b"", needs=(0,)),
    )
    await site.store(GraphStarted(graph_id="sales", title="daily", steps=steps))
    assert 'href="/workflows/sales"' in await page(site, "/workflows")
    text = await page(site, "/workflows/sales")
    assert text.count('<g class="node') == 2
    assert text.count('<path class="edge') == 1
    assert "What it waits for" in text
    assert "there is no workflow" in (await page(site, "/workflows/gone", status=404)).lower()


async def test_a_batch_shows_its_counts_and_its_jobs(site: Site) -> None:
    await site.store(BatchCreated(batch_id="import", title="November", total=200))
    assert "November" in await page(site, "/batches")
    text = await page(site, "/batches/import")
    assert "Batch November" in text
    assert "<dd>200</dd>" in text


async def test_capacity_names_each_host(site: Site) -> None:
    host = HostSnapshot(host="h1", cpu_cores=8, memory_bytes=2**34, cpu_busy_cores=2.5)
    await site.publish(site.subjects.host_snapshot("h1"), host)
    assert "2.5 of 8" in await page(site, "/capacity")
    assert "Host h1" in await page(site, "/capacity/h1")


async def test_a_pool_has_a_chart_of_what_was_measured(site: Site) -> None:
    snapshot = PoolSnapshot(pool="reports", queues=("reports",), waiting=9, at=datetime.now(UTC))
    await site.publish(site.subjects.pool_snapshot("reports"), snapshot)
    series = await get(site, "/pools/reports/series?seconds=900")
    assert series["points"]["values"]["waiting"] == [9]
    assert series["sla_seconds"] == 30
    assert 'data-pool="reports"' in await page(site, "/pools/reports")


async def test_tags_lead_to_their_jobs(site: Site) -> None:
    await site.store(dispatched(1, tags=("month end",)), dispatched(2, tags=("month end",)))
    text = await page(site, "/tags")
    assert re.search(r'href="(/jobs[^"]*)" data-open>month end</a></th>[^>]*>2<', text)
    jobs = await page(site, html.unescape(re.findall(r'href="(/jobs[?]q=tag[^"]*)"', text)[0]))
    assert jobs.count("data-open") == 2


async def test_points_that_have_left_the_memory_are_read_from_the_database(site: Site) -> None:
    measured, at = Series(), time.time() - 4 * 3_600
    values = [9.0 if column == "waiting" else None for column in COLUMNS["pool"]]
    measured.add("pool", "reports", at, values)
    store = site.console.store.current.store_series
    await site.console.projection.in_writer(store, measured.take_changed())
    series = await get(site, "/pools/reports/series?seconds=21600")
    assert series["points"]["values"]["waiting"] == [9]
    series = await get(site, "/metrics/series?kind=pool&name=reports&seconds=86400")
    assert (series["step_seconds"], series["values"]["waiting"]) == (60, [9])


async def test_events_are_listed_newest_first(site: Site) -> None:
    await site.store(dispatched(1), dispatched(2))
    text = await page(site, "/events?noun=job")
    assert text.index("job-002") < text.index("job-001")


async def test_settings_stand_there_once_with_their_source(site: Site) -> None:
    for service in ("decider", "metrics"):
        await Announcer(site.bus, service, site.settings).publish()
    text = await page(site, "/settings")
    assert text.count("<code>pools.reports.sla_seconds</code>") == 1
    assert "jobs.claim_seconds" not in text
    row = text.split("<code>pools.reports.sla_seconds</code>")[1].split("</tr>")[0]
    assert re.findall(r">(file|reload|all)<", row) == ["file", "reload", "all"]
    assert "jobs.claim_seconds" in await page(site, "/settings?every=true")
    explained = await get(site, "/settings/explain?name=pools.reports.sla_seconds")
    assert [(one["source"], one["adopted"]) for one in explained["in_force"]] == [
        ("file", "reload")
    ]
