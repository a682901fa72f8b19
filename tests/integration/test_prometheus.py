"""Prometheus for real beside `penstock up`: what dashboards and alerts ask for is told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.otlp import Collector
from tests.integration.prometheus import DEPLOY, Prometheus, installed
from tests.integration.test_up import JOBS, Up, running_up

from penstock.runtime.paths import free_port
from penstock.telemetry.metrics import ALL

pytestmark = pytest.mark.skipif(
    not installed(), reason="prometheus is missing; install Debian's package prometheus"
)

SERVICES = ("metrics", "decider", "orchestrator", "executor", "console")
CONFIG = """
[streams]
events_max_bytes = 16_000_000
[jobs]
modules = ["up_jobs"]
[host]
name = "watched-host"
reserve_cpu_cores = 0
reserve_memory_bytes = 0
max_cpu_share = 1
[pools.reports]
sla_seconds = 20
min_workers = 1
max_workers = 2
"""
WORKFLOW = """
from penstock.jobs import workflow


@workflow(queue="reports")
async def nap(ctx):
    await ctx.sleep(0.2)
    await ctx.run(add(a=1))
    await ctx.wait_signal("go", bool)
"""
STARTED = "penstock_jobs_started_total"
DASHBOARDS = {path.stem: path for path in (DEPLOY / "grafana" / "dashboards").glob("*.json")}


class Watched:
    """A running system, the Prometheus that watches it, and the collector of its traces."""

    def __init__(self, up: Up, prometheus: Prometheus, collector: Collector) -> None:
        self.up, self.prometheus, self.collector = up, prometheus, collector


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    """Jobs were run, and what they left was scraped."""
    folder = tmp_path_factory.mktemp("watched")
    ports = {name: free_port() for name in SERVICES}
    http = "\n".join(f"{name}_port = {port}" for name, port in ports.items())
    (folder / "up_jobs.py").write_text(JOBS + WORKFLOW)
    with Collector() as collector:
        telemetry = f'endpoint = "{collector.endpoint}"\nmetrics_seconds = 1'
        settings = f"{CONFIG}\n[http]\n{http}\n[telemetry]\n{telemetry}\n"
        (folder / "penstock.toml").write_text(settings)
        with running_up(folder, 20.0) as up:
            prometheus = Prometheus(ports, folder)
            try:
                up.until_ready()
                submit(up, 1)
                prometheus.until(lambda: not prometheus.down(), "scraping all services")
                prometheus.until(lambda: STARTED in prometheus.names(), "told of a job")
                submit(up, 3)  # a rate is the growth between two looks at a counter
                long_enough = ("-a", f"folder={folder}", "-a", "seconds=0.5")  # to be measured
                up.shell.json("job", "submit", "up_jobs.hold", *long_enough, "--wait")
                up.shell.json("workflow", "run", "up_jobs.nap", "--no-wait")
                yield Watched(up, prometheus, collector)
            finally:
                prometheus.end()


def submit(up: Up, jobs: int) -> None:
    for a in range(jobs):
        up.shell.json("job", "submit", "up_jobs.add", "-a", f"a={a}", "--wait")


def panels(dashboard: str) -> list[dict[str, Any]]:
    board = json.loads(DASHBOARDS[dashboard].read_text("utf-8"))
    shown = [panel for panel in board["panels"] if panel["type"] != "row"]
    return shown + [{"title": "annotation", "targets": [a]} for a in board["annotations"]["list"]]


def filled(expression: str) -> str:
    """With the variables as "All" fills them."""
    return re.sub(r"\$(pool|host)", ".*", expression).replace("$__interval", "30s")


def test_all_services_are_ready(watched: Watched) -> None:
    ready = "min by (service) (penstock_service_check)"
    watched.prometheus.until(
        lambda: (
            {
                each["metric"]["service"]
                for each in watched.prometheus.ask("query", query=ready)["result"]
                if each["value"][1] == "1"
            }
            == set(SERVICES)
        ),
        "told that every check of all services is passed",
    )


@pytest.mark.parametrize("dashboard", DASHBOARDS)
def test_every_panel_asks_for_what_a_running_system_tells(watched: Watched, dashboard: str) -> None:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            wanted = set(re.findall(r"[a-z_]+:\w+:\w+|penstock_\w+", target["expr"]))
            assert wanted, panel["title"]
            watched.prometheus.until(
                lambda wanted=wanted: wanted <= watched.prometheus.names(),
                f"telling {wanted} for {dashboard}: {panel['title']}",
                30,
            )
            assert watched.prometheus.ask("query", query=filled(target["expr"])) is not None


def test_every_rule_can_be_evaluated_and_no_alert_comes(watched: Watched) -> None:
    found = watched.prometheus.ask("rules")["groups"]
    rules = [rule for group in found for rule in group["rules"]]
    watched.prometheus.until(
        lambda: all(
            rule["health"] == "ok"
            for group in watched.prometheus.ask("rules")["groups"]
            for rule in group["rules"]
        ),
        "done with all rules",
    )
    assert len(rules) > 20
    firing = [rule["name"] for rule in rules if rule.get("state") == "firing"]
    assert firing == []


def test_a_pickup_time_leads_to_its_trace(watched: Watched) -> None:
    wanted = {"query": "penstock_job_pickup_seconds_bucket", "start": "0", "end": "9999999999"}
    watched.prometheus.until(
        lambda: watched.prometheus.ask("query_exemplars", **wanted), "given exemplars"
    )
    found = watched.prometheus.ask("query_exemplars", **wanted)
    traced = {span.trace_id for span in watched.collector.wait_for_all("run", 1)}
    told = {each["labels"]["trace_id"] for series in found for each in series["exemplars"]}
    assert told <= traced
    assert told


def test_what_is_posted_has_the_names_that_are_declared(watched: Watched) -> None:
    def posted() -> dict[str, set[str]]:
        """Names by service."""
        told: dict[str, set[str]] = {}
        for request in list(watched.collector.metrics):
            for group in request.resource_metrics:
                about = {a.key: a.value.string_value for a in group.resource.attributes}
                names = {metric.name for metric in group.scope_metrics[0].metrics}
                told.setdefault(about["service.name"], set()).update(names)
        return told

    declared = {metric.name: metric.published_by for metric in ALL}
    posting = {f"penstock-{service}" for service in SERVICES}
    watched.prometheus.until(lambda: posting <= posted().keys(), f"given metrics by {posting}")
    for service, names in posted().items():
        tellers = {declared[name] for name in names}
        assert tellers == {"every service", service.removeprefix("penstock-")}


def test_log_lines_of_a_scaling_carry_its_trace(watched: Watched) -> None:
    def headlines() -> list[str]:
        """Traces that decisions were logged in."""
        return [
            line.trace_id.hex()
            for request in list(watched.collector.logs)
            for group in request.resource_logs
            for scope in group.scope_logs
            for line in scope.log_records
            if line.body.string_value.startswith("Pool reports: 0 → 1")
        ]

    watched.prometheus.until(headlines, "sent the line of the first decision")
    decided = {span.trace_id for span in watched.collector.wait_for_all("decide", 1)}
    assert set(headlines()) <= decided
