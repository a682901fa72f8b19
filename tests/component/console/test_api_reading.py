"""Reading endpoints of the API over the bus in memory: each answers by what the log says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import died, dispatched, get

from penstock.events.batch import BatchCreated
from penstock.events.health import HealthChanged
from penstock.events.job import JobCompleted, JobStarted
from penstock.events.scaling import HostCountAdvised, Reason, ScalingDecisionMade
from penstock.events.snapshot import (
    Budget,
    EndedRate,
    Forecast,
    HostSnapshot,
    PoolSnapshot,
    PoolWorkers,
)
from penstock.jobs import NamedJob
from penstock.jobs.workflows.declared.reading import from_values
from penstock.telemetry.metrics import ALL

NOW = datetime.now(UTC)


def decision(current: int, target: int, ago: float = 0, **fields: Any) -> ScalingDecisionMade:
    reasons = (
        Reason(step="strategy", rule="hybrid", workers=9, text="9: the backlog"),
        Reason(step="bounds", rule="max", workers=target, text=f"{target}: at most"),
    )
    return ScalingDecisionMade(
        pool="reports",
        at=NOW - timedelta(seconds=ago),
        current=current,
        target=target,
        reasons=reasons,
        strategy="hybrid",
        sla_seconds=30,
        **fields,
    )


def completed(number: int, **started: Any) -> list[Any]:
    about: dict[str, Any] = {"job_id": f"job-{number:03}", "queue": "reports", "attempt": 1}
    return [
        dispatched(number, at=NOW),
        JobStarted(**about, host="h1", worker="w1", **started),
        JobCompleted(**about, run_seconds=2.0),
    ]


async def test_failures_are_grouped_by_what_they_look_like(site: Site) -> None:
    await site.store(
        dispatched(1), *died(1, "order 17 timed out"),
        dispatched(2), *died(2, "order 18 timed out"),
        dispatched(3), *died(3, "no such table"),
    )  # fmt: skip
    groups = (await get(site, "/failures"))["items"]
    assert sorted((one["message"], one["deaths"], one["dead_now"]) for one in groups) == [
        ("no such table", 1, 1), ("order <n> timed out", 2, 2)
    ]  # fmt: skip
    orders = next(one["fingerprint"] for one in groups if one["deaths"] == 2)
    assert (await get(site, f"/failures/{orders}"))["functions"] == ["shop.rebuild"]
    series = (await get(site, f"/failures/{orders}/series"))["items"]
    assert sum(hour["deaths"] for hour in series) == 2
    dead = (await get(site, f"/dead?fingerprint={orders}"))["items"]
    assert [job["id"] for job in dead] == ["job-002", "job-001"]
    assert (await get(site, "/dead/job-003"))["error_message"] == "no such table"
    await get(site, "/dead/job-999", status=404)
    await get(site, "/failures/ffff", status=404)


async def test_dead_jobs_are_walked_by_cursor(site: Site) -> None:
    for number in range(5):
        await site.store(dispatched(number), *died(number, "no"))
    seen: list[str] = []
    cursor = ""
    while True:
        page = await get(site, f"/dead?limit=2&cursor={cursor}")
        seen += [job["id"] for job in page["items"]]
        if not (cursor := page["next"]):
            break
    assert seen == [f"job-{number:03}" for number in reversed(range(5))]


async def test_batches_and_their_jobs(site: Site) -> None:
    await site.store(BatchCreated(batch_id="b1", title="nightly load", total=2))
    [batch] = (await get(site, "/batches"))["items"]
    assert (batch["id"], batch["title"], batch["state"]) == ("b1", "nightly load", "open")
    assert (await get(site, "/batches?state=completed"))["items"] == []
    assert (await get(site, "/batches/b1"))["total"] == 2
    assert (await get(site, "/batches/b1/jobs"))["items"] == []
    await get(site, "/batches/gone", status=404)


async def test_graphs_show_their_steps_without_arguments(site: Site) -> None:
    load = NamedJob("shop.load", queue="reports")
    graph_id = await site.console.client.graphs.chain([load(table="secret-x"), load(table="b")])
    last = await site.bus.last(site.subjects.events_stream, site.subjects.events())
    assert last is not None
    assert await site.console.projection.reached(last.sequence, 10)
    [graph] = (await get(site, "/graphs"))["items"]
    assert (graph["id"], graph["state"], graph["steps"]) == (graph_id, "running", 2)
    assert len((await get(site, f"/graphs/{graph_id}/nodes"))["items"]) == 2
    text = (await site.client.get(f"/api/v1/graphs/{graph_id}")).text
    assert "secret-x" not in text
    [shape] = (await get(site, "/graphs/shapes"))["items"]
    assert (shape["graphs"], shape["running"]) == (1, 1)
    await get(site, "/graphs/gone", status=404)


async def test_definitions_of_workflows(site: Site) -> None:
    definition = from_values(
        {
            "name": "nightly",
            "version": 3,
            "steps": [{"name": "load", "function": "shop.load"}],
        }
    )
    await site.console.client.definitions.define(definition)
    [listed] = (await get(site, "/workflows/definitions"))["items"]
    assert (listed["name"], listed["version"], listed["steps"]) == ("nightly", 3, 1)
    assert (await get(site, "/workflows/definitions/nightly"))["digest"] == listed["digest"]
    await get(site, "/workflows/definitions/gone", status=404)


async def test_coded_workflows_show_what_they_wait_for(site: Site) -> None:
    await site.store(dispatched(1, kind="workflow"))
    assert [one["id"] for one in (await get(site, "/workflows"))["items"]] == ["job-001"]
    assert (await get(site, "/workflows/job-001"))["workflow"]["state"] == "waiting"
    assert (await get(site, "/workflows/job-001/steps"))["items"] == []
    await get(site, "/workflows/gone", status=404)
    await get(site, "/workflows?state=odd", status=400)


async def test_schedules_and_their_next_ticks(site: Site) -> None:
    load = NamedJob("shop.load", queue="reports")
    await site.console.client.schedules.add("nightly", load(table="secret-x"), "0 1 * * *")
    [listed] = (await get(site, "/schedules"))["items"]
    assert (listed["name"], listed["is_paused"]) == ("nightly", False)
    ticks = (await get(site, "/schedules/nightly/ticks"))["items"]
    assert len(ticks) == 20
    assert ticks[0]["at"] == (await get(site, "/schedules/nightly"))["next_tick"]
    assert "secret-x" not in (await site.client.get("/api/v1/schedules/nightly")).text
    await get(site, "/schedules/gone", status=404)


async def test_tags_are_counted_and_lead_to_their_jobs(site: Site) -> None:
    await site.store(
        dispatched(1, tags=("nightly", "eu")), *died(1, "x"), dispatched(2, tags=("nightly",))
    )
    assert (await get(site, "/tags"))["items"] == [
        {"tag": "nightly", "jobs": 2, "dead": 1}, {"tag": "eu", "jobs": 1, "dead": 1}
    ]  # fmt: skip
    assert [job["id"] for job in (await get(site, "/tags/eu"))["items"]] == ["job-001"]


@pytest.fixture
async def measured(site: Site) -> Site:
    budget = Budget(sla_seconds=30, quantile=0.95, window_seconds=86_400, jobs=100, late=1)
    await site.publish(
        site.subjects.pool_snapshot("reports"),
        PoolSnapshot(
            pool="reports",
            queues=("reports",),
            waiting=7,
            arrival_per_second=2.0,
            budget=budget,
            forecast=Forecast(
                model="daily", horizon_seconds=10, mean_per_second=3, p80_per_second=4,
                p95_per_second=5, p99_per_second=6, relative_loss=0.7,
            ),
            ended_by_queue={"reports": EndedRate(finished_per_minute=30)},
        ),
    )  # fmt: skip
    await site.publish(
        site.subjects.host_snapshot("h1"),
        HostSnapshot(
            host="h1",
            cpu_cores=4,
            memory_bytes=2**33,
            pools={"reports": PoolWorkers(planned=2, started=2, ready=2)},
        ),
    )
    return site


def max_of(values: list[float | None]) -> float:
    """Of the points that have one: a decision and a snapshot may be of different seconds."""
    return max(value for value in values if value is not None)


async def test_the_parts_of_a_pool(measured: Site) -> None:
    await measured.store(*completed(1), decision(0, 4))
    assert (await get(measured, "/pools/reports/queues"))["items"][0]["queue"] == "reports"
    assert (await get(measured, "/pools/reports/workers"))["items"] == []
    [function] = (await get(measured, "/pools/reports/functions"))["items"]
    assert (function["function"], function["run_seconds"]) == ("shop.rebuild", 2.0)
    assert (await get(measured, "/pools/reports/budget"))["budget"]["late"] == 1
    series = (await get(measured, "/pools/reports/series"))["points"]["values"]
    assert (max_of(series["waiting"]), max_of(series["arrival_per_second"])) == (7, 2.0)
    assert (await get(measured, "/pools/reports/explanation"))["decision"]["target"] == 4
    await get(measured, "/pools/imports/explanation", status=404)
    await get(measured, "/pools/gone/queues", status=404)


async def test_hosts_capacity_and_advice(measured: Site) -> None:
    host = await get(measured, "/hosts/h1")
    assert (host["host"]["ready"], host["snapshot"]["cpu_cores"]) == (2, 4)
    series = (await get(measured, "/hosts/h1/series?seconds=21600"))["values"]
    assert (series["ready"], series["started"]) == ([2], [2])
    await get(measured, "/hosts/gone/series", status=404)
    capacity = await get(measured, "/capacity")
    assert (capacity["hosts"], capacity["workers_ready"]) == (1, 2)
    assert (await get(measured, "/advice"))["needed"] is None
    await measured.store(HostCountAdvised(hosts=1, needed=2, text="one more"))
    assert (await get(measured, "/advice"))["needed"] == 2
    await get(measured, "/hosts/gone", status=404)
    await get(measured, "/workers/gone", status=404)


async def test_a_queue_and_its_series(measured: Site) -> None:
    assert (await get(measured, "/queues/reports"))["pool"] == "reports"
    series = (await get(measured, "/queues/reports/series"))["values"]
    assert series["finished_per_minute"] == [30]
    assert (await get(measured, "/queues/pauses"))["items"] == []
    await measured.console.client.pauses.pause("reports", "a repair")
    [pause] = (await get(measured, "/queues/pauses"))["items"]
    assert (pause["queue"], pause["reason"], pause["by"]) == ("reports", "a repair", "console")
    await get(measured, "/queues/gone", status=404)


async def test_forecasts_and_metrics(measured: Site) -> None:
    [imports, reports] = (await get(measured, "/forecasts"))["items"]
    assert (imports["forecast"], reports["forecast"]["model"]) == (None, "daily")
    [accuracy] = (await get(measured, "/forecasts/accuracy"))["items"]
    assert accuracy["relative_loss"] == 0.7
    assert len((await get(measured, "/metrics/catalog"))["items"]) > 20
    assert len((await get(measured, "/metrics/series?kind=host&name=h1"))["at"]) == 1
    [record] = (await get(measured, "/metrics/records"))["items"]
    assert record["waiting"] == 7
    await get(measured, "/metrics/series?kind=host&name=gone", status=404)


async def test_everything_measured_is_one_page_for_prometheus(measured: Site) -> None:
    await measured.publish(
        measured.subjects.event(made := decision(2, 5, predicted_pickup_seconds=1.5)), made
    )
    answer = await measured.client.get("/api/v1/metrics/prometheus")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["penstock_pool_jobs_waiting", "reports"] == 7
    assert samples["penstock_pool_promised_seconds", "imports"] == 5
    assert samples["penstock_decision_target_workers", "reports"] == 5
    assert samples["penstock_host_cpu", "h1"] > 0
    assert samples["penstock_console_position",] == measured.console.standing.position
    assert samples["process_resident_memory_bytes",] > 0
    named = {f"{one.prometheus}" for one in ALL}
    assert {name for name, *_ in samples if name.startswith("penstock_")} <= named | {
        f"{name}_total" for name in named
    }


async def test_the_page_for_prometheus_is_bounded_and_made_once_a_second(
    measured: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.console.live.scraped_page.MOST_READINGS", 3)
    monkeypatch.setattr("penstock.console.live.scraped_page._SAME_SECONDS", 3600.0)
    pages = [await measured.client.get("/api/v1/metrics/prometheus") for _ in range(2)]
    families = text_string_to_metric_families(pages[0].text)
    assert sum(family.name.startswith("penstock") for family in families) == 3
    assert pages[0].text == pages[1].text


async def test_cost_is_added_up_from_decisions_and_compared_with_a_fixed_fleet(
    site: Site,
) -> None:
    await site.store(
        decision(0, 0, ago=10_000),
        decision(0, 4, ago=3600),
        decision(4, 0, ago=1800),
        *completed(1),
    )
    cost = next(
        one for one in (await get(site, "/cost?within=7200"))["items"] if one["pool"] == "reports"
    )
    assert cost["worker_hours"] == pytest.approx(2.0, rel=0.01)
    assert (cost["peak_workers"], cost["fixed_fleet_worker_hours"]) == (4, 8.0)
    assert (await get(site, "/cost/fixed-fleet?within=7200"))["saved_share"] == pytest.approx(0.75)
    whole = await get(site, "/cost/fixed-fleet?within=86400")
    assert whole["saved_share"] == pytest.approx(0.82, abs=0.05)  # of 10,000 s, not of a day
    assert (await get(site, "/cost/jobs"))["items"] == [
        {"function": "shop.rebuild", "jobs": 1, "run_seconds": 2.0}
    ]


async def test_why_a_decision_named_no_other_number_and_what_came_of_it(site: Site) -> None:
    made = decision(0, 4, ago=10, epoch=3, round=8)
    await site.store(made, *completed(1, pickup_seconds=31.0), decision(4, 2, epoch=3, round=9))
    why = await get(site, f"/decisions/{made.id}/why?workers=6")
    assert [one["rule"] for one in why["against"]] == ["max"]
    outcome = await get(site, f"/decisions/{made.id}/outcome")
    assert (outcome["jobs"], outcome["late"], outcome["next_target"]) == (1, 1, 2)
    [one] = (await get(site, "/rounds/3/8"))["items"]
    assert one["id"] == made.id
    await get(site, "/rounds/3/99", status=404)
    await get(site, "/decisions/gone/why?workers=1", status=404)


async def test_events_one_by_one_and_their_schema(site: Site) -> None:
    sequence = await site.store(dispatched(1), *died(1, "x"))
    listed = (await get(site, "/events?noun=job&limit=2"))["items"]
    assert [one["name"] for one in listed] == ["JobDead", "JobFailed"]
    one = await get(site, f"/events/{sequence}")
    assert (one["key"], one["event"]["error"]["message"]) == ("job-001", "x")
    first = (await site.client.get(f"/api/v1/events/{sequence - 3}")).text
    assert "JobDispatched" in first
    assert "secret" not in first
    assert "c2VjcmV0" not in first
    schema = (await get(site, "/events/schema"))["items"]
    assert "JobDispatched" in {one["event"] for one in schema}
    await get(site, "/events/999999", status=404)


async def test_settings_streams_and_services(site: Site) -> None:
    assert (await get(site, "/settings"))["settings"]["pools"]["reports"]["sla_seconds"] == 30
    setting = await get(site, "/settings/explain?name=stuck.threshold")
    assert setting["is_default"] is True
    await get(site, "/settings/explain?name=stuck.nothing", status=404)
    streams = (await get(site, "/streams"))["items"]
    assert len(streams) == 10
    assert (await get(site, "/connections"))["is_connected"] is True


async def test_the_history_of_health(site: Site) -> None:
    await site.store(
        HealthChanged(component="disk", state="degraded", before="healthy", reasons=("full",))
    )
    [change] = (await get(site, "/health/history"))["items"]
    assert change["event"]["state"] == "degraded"


async def test_stuck_jobs_are_those_that_hosts_report(site: Site) -> None:
    stuck = await get(site, "/stuck")
    assert (stuck["items"], stuck["silent_hosts"]) == ([], [])


async def test_totals_and_the_starts_of_a_job(site: Site) -> None:
    await site.store(dispatched(1), *died(1, "x"))
    assert (await get(site, "/stats"))["dead"] == 1
    [attempt] = (await get(site, "/jobs/job-001/timeline"))["items"]
    assert (attempt["host"], attempt["end"]) == ("h1", "JobFailed")
    await get(site, "/jobs/gone/timeline", status=404)


async def test_unknown_parameters_are_refused_and_the_known_ones_named(site: Site) -> None:
    wrong = await get(site, "/decisions?all=true", 400)
    assert "known are as_of, cursor, every, limit, pool" in wrong["detail"]
    [error] = wrong["errors"]
    assert error["parameter"] == "all"
    assert "did you mean cursor?" in (await get(site, "/jobs?curser=x", 400))["detail"]
    assert "none is known here" in (await get(site, "/version?x=", 400))["detail"]
    assert "did you mean job?" in (await get(site, "/events?noun=jobb", 400))["detail"]
    assert (await site.client.get("/api/v1/events/stream?noun=jobb")).status_code == 400
    assert (await site.client.get("/jobs?q=&further=x")).status_code == 200


async def test_each_described_parameter_is_known(site: Site) -> None:
    paths = (await get(site, "/openapi.json"))["paths"]
    for path, operations in paths.items():
        for one in operations.get("get", {}).get("parameters", ()):
            if one["in"] == "query" and "{" not in path and "stream" not in path:
                answer = await site.client.get(f"{path}?{one['name']}=x")
                assert "there is no such parameter" not in answer.text, (path, one["name"])
