"""Pages of one queue, worker, schedule and payload; costs, definitions, metrics, API, search."""

from __future__ import annotations

import csv
import io
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import died, dispatched
from tests.component.console.test_console_pages import page
from tests.component.console.test_page_acts import browser
from tests.waiting import eventually

from penstock.bus.protocol import BusUnavailable, Outgoing
from penstock.console.read_models import job_detail
from penstock.events.batch import BatchCreated
from penstock.events.envelope import encode
from penstock.events.graph import GraphStarted, GraphStep
from penstock.events.job import JobDispatched, JobStarted
from penstock.events.queue import QueuePaused
from penstock.events.snapshot import Forecast, HostSnapshot, PoolSnapshot, PoolWorkers
from penstock.events.worker import WorkerReport
from penstock.events.workflow import WorkflowAdvanced
from penstock.events.workflow_memo import ScheduledStep, WaitGroup
from penstock.jobs.job_type import NamedJob
from penstock.jobs.queues import queue_messages
from penstock.jobs.reading.handed_on import headers
from penstock.jobs.workflows.declared.reading import from_values


@pytest.mark.parametrize(
    "path", ["/costs", "/definitions", "/metrics-catalog", "/records", "/api-docs", "/search"]
)
async def test_each_has_the_navigation_and_says_what_to_do_where_it_is_empty(
    site: Site, path: str
) -> None:
    text = await page(site, path)
    assert text.count('data-go="') == 9
    assert text.count("<h1") == 1


async def test_a_queue_shows_its_jobs_and_what_is_wrong_with_it(site: Site) -> None:
    await site.store(dispatched(1), dispatched(2, queue="odd"))
    text = await page(site, "/queues/reports")
    assert "job-001" in text
    assert "job-002" not in text
    assert "No pool serves this queue" in await page(site, "/queues/odd")
    assert "is not configured" in await page(site, "/queues/gone", status=404)


async def test_a_worker_shows_its_job(site: Site) -> None:
    of_pool = PoolWorkers(planned=1, started=1, ready=1, names=("w1",))
    host = HostSnapshot(host="h1", cpu_cores=1, memory_bytes=1, pools={"reports": of_pool})
    await site.bus.append(Outgoing(site.subjects.host_snapshot("h1"), encode(host)))
    present = site.console.present
    await eventually(lambda: "h1" in present.board.hosts, 10, "the host's snapshot")
    report = WorkerReport(
        worker="w1", host="h1", pool="reports", pid=7, state="idle", number=1, at=time.time(),
        started_at=time.time() - 60, cpu_seconds=1.0, memory_bytes=2**20, claims=(),
    )  # fmt: skip
    subject, version = site.subjects.worker_report("h1", "w1"), site.console.present.version
    await site.bus.signal(subject, msgspec.json.encode(report))
    await eventually(lambda: site.console.present.version > version, 10, "the report")
    assert "it waits for a job of pool reports" in await page(site, "/capacity/workers/w1")
    assert "has not reported" in await page(site, "/capacity/workers/gone", status=404)


async def test_a_schedule_shows_its_next_times_and_its_jobs(site: Site) -> None:
    job = NamedJob("shop.close_day", queue="reports")()
    await site.console.client.schedules.add("nightly", job, "30 2 * * *", zone="Europe/Berlin")
    await site.store(dispatched(1, tags=("schedule:nightly",)), dispatched(2))
    text = await page(site, "/schedules/nightly")
    assert text.count('<li class="number') == 10
    assert "job-001" in text
    assert "job-002" not in text
    assert "there is no schedule" in (await page(site, "/schedules/gone", status=404)).lower()


async def test_a_job_that_died_leads_to_its_group_and_to_its_arguments(site: Site) -> None:
    await site.store(dispatched(1), *died(1, "no disk"), dispatched(2), *died(2, "no disk"))
    text = await page(site, "/jobs/job-001")
    assert "2 jobs are dead of the same" in text
    assert 'href="/failures/' in text


async def test_what_a_suspended_workflow_waits_for_stands_in_the_list(site: Site) -> None:
    about: dict[str, Any] = {"job_id": "job-001", "queue": "reports"}
    signal = ScheduledStep(n=1, key="approved", kind="signal", digest="approved")
    await site.store(
        dispatched(1, kind="workflow"),
        JobStarted(**about, attempt=1, host="h1", worker="w1"),
        WorkflowAdvanced(
            **about,
            number=1,
            now=datetime.now(UTC),
            scheduled=(signal,),
            wait=(WaitGroup((1,)),),
            status={"stage": "asked"},
        ),
        GraphStarted(
            graph_id="order", title="order", steps=(GraphStep(name="charge", payload=b""),)
        ),
        JobDispatched(job_id="order_step_0", queue="reports", function="shop.charge", payload=b""),
    )
    text = await page(site, "/workflows")
    assert "signal approved <span" in text
    assert "charge <span" in text
    assert text.count(">since <time") == 2
    assert "stage:</span> asked" in text
    assert "stage:</span> asked" in await page(site, "/workflows/job-001")


async def test_forecasts_say_why_none_is_used(site: Site) -> None:
    forecast = Forecast(
        model="level", horizon_seconds=45, mean_per_second=2.5, p80_per_second=3,
        p95_per_second=4, p99_per_second=5, off="no model beats the level",
    )  # fmt: skip
    snapshot = PoolSnapshot(pool="reports", queues=("reports",), waiting=0, forecast=forecast)
    await site.publish(site.subjects.pool_snapshot("reports"), snapshot)
    text = await page(site, "/costs?days=7")
    assert "not used: no model beats the level" in text
    assert "nothing was measured of this pool yet" in text


async def test_definitions_are_listed_with_how_their_runs_ended(site: Site) -> None:
    steps = [{"name": "load", "function": "shop.load"}]
    definition = from_values({"name": "nightly", "version": 3, "steps": steps})
    await site.console.client.definitions.define(definition)
    graph = GraphStarted(
        graph_id="n1", title="", definition="nightly", steps=(GraphStep(name="a", payload=b""),)
    )
    await site.store(graph)
    text = await page(site, "/definitions")
    assert text.count("nightly") >= 2


async def test_records_as_a_file_calculate_nothing(site: Site) -> None:
    snapshot = PoolSnapshot(pool="reports", queues=("=cmd()",), waiting=9)
    await site.publish(site.subjects.pool_snapshot("reports"), snapshot)
    assert "=cmd()" in await page(site, "/records")
    answer = await site.client.get("/records.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = dict(csv.reader(io.StringIO(answer.text)))
    assert rows["waiting"] == "9"
    assert rows["queues"] == "'=cmd()"


async def test_the_api_page_lists_each_endpoint_with_its_scope(site: Site) -> None:
    text = await page(site, "/api-docs")
    described = (await site.client.get("/api/v1/openapi.json")).json()["paths"]
    for path in described:
        assert path.removeprefix("/api/v1") in text, path


async def test_search_finds_by_name_title_and_the_beginning_of_an_id(site: Site) -> None:
    await site.store(dispatched(1), BatchCreated(batch_id="b1", title="November import", total=2))
    assert 'href="/pools/reports"' in await page(site, "/search?q=REPO")
    assert 'href="/jobs/job-001"' in await page(site, "/search?q=job-0")
    assert 'href="/batches/b1"' in await page(site, "/search?q=november")
    for part in ("shop", "rebuild", "Shop.Re"):
        assert 'href="/jobs?q=function%3Ashop.rebuild"' in await page(site, f"/search?q={part}")
    assert "Nothing has a name" in await page(site, "/search?q=zzzz")
    assert "&lt;script&gt;" in await page(site, "/search?q=<script>")


async def test_a_browser_is_shown_a_page_where_a_page_cannot_be(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = {"Accept": "text/html"}
    answer = await site.client.get("/no-such-page", headers=browser)
    assert (answer.status_code, "Not found" in answer.text) == (404, True)

    async def away(*_: object, **__: object) -> None:
        raise BusUnavailable("no server listens")

    monkeypatch.setattr(job_detail, "read_ends", away)
    answer = await site.client.get("/jobs/job-001", headers=browser)
    assert answer.status_code == 503
    assert "The broker does not answer" in answer.text
    assert "No server listens." in answer.text
    assert "Jobs go on without the console" in answer.text
    answer = await site.client.get("/jobs/job-001")
    assert answer.headers["content-type"].startswith("application/problem+json")
    answer = await site.client.get("/api/v1/jobs/job-001", headers=browser)
    assert answer.headers["content-type"].startswith("application/problem+json")


async def test_a_look_at_arguments_goes_through_the_api(site: Site) -> None:
    job = NamedJob("shop.load", queue="reports")
    job_id = await site.console.client.dispatch(job(table="orders", password="hunter2"))
    assert (await site.client.get(f"/jobs/{job_id}/payload")).status_code == 403
    operator = await browser(site)
    answer = await operator.get(f"/jobs/{job_id}/payload")
    assert "orders" in answer.text
    assert "hunter2" not in answer.text
    entries, _ = await site.console.control.audit.newest(10)
    [looked] = [entry for entry in entries if entry.action == "payload.view"]
    assert (looked.actor, looked.result) == ("ada", "shown")


async def test_an_empty_installation_says_how_to_begin(site: Site) -> None:
    assert "Start the services" in await page(site, "/")
    assert "Tick the box" in await page(site, "/decisions")
    assert "Nothing was searched." in await page(site, "/jobs?q=color:red")


async def test_a_step_leads_to_its_workflow(site: Site) -> None:
    step = JobDispatched(job_id="order_step_0", queue="reports", function="charge", payload=b"")
    await site.store(step)
    assert 'href="/workflows/order"' in await page(site, "/jobs/order_step_0")


async def test_a_paused_queue_stands_at_its_pool_before_a_job_waits(site: Site) -> None:
    await site.store(QueuePaused(queue="reports", reason="closed"))
    for path in ("/", "/pools"):
        assert 'href="/queues/reports">reports paused<' in await page(site, path)
    assert "Queue reports is paused: no job waits yet." in await page(site, "/")


async def test_states_are_counted_by_the_filter(site: Site) -> None:
    job = JobDispatched(job_id="i-1", queue="imports", function="shop.load", payload=b"")
    await site.store(dispatched(1), dispatched(2), job)
    counted = 'waiting <span class="number">'
    assert f"{counted}3<" in await page(site, "/jobs")
    assert f"{counted}1<" in await page(site, "/jobs?q=queue:imports")
    assert f"{counted}0<" in await page(site, "/jobs?q=err:timeout")


async def test_a_job_that_workers_hand_on_says_why_it_waits(site: Site) -> None:
    await site.store(dispatched(1))
    said = {queue_messages.UNKNOWN_SINCE: "1795874817", **headers("no such job", 1795875117.0)}
    schedule = site.subjects.schedule("reports", "job-001")
    await site.bus.append(Outgoing(schedule, b"", headers=said))
    expected = "handed on since 14:06:57 UTC: no such job; dead at 14:11:57 UTC"
    answer = (await site.client.get("/api/v1/jobs/job-001")).json()
    assert answer["job"]["waits"].startswith(expected)
    assert f"It waits: {expected}" in await page(site, "/jobs/job-001")
