"""Grafana, the collector and the compose profile fit together, as far as their files can tell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.component.deploy.test_alerts import SCRAPED, asked_for, rules

HERE = Path(__file__).parents[3]
DEPLOY = HERE / "deploy"
DASHBOARDS = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in (DEPLOY / "grafana" / "dashboards").glob("*.json")
}
PROFILE = "observability"


def read(*path: str) -> Any:
    return yaml.safe_load(DEPLOY.joinpath(*path).read_text("utf-8"))


def watchers() -> dict[str, Any]:
    services = yaml.safe_load((HERE / "docker-compose.yml").read_text("utf-8"))["services"]
    return {name: s for name, s in services.items() if PROFILE in s.get("profiles", ())}


def test_dashboards_are_as_they_would_be_made_now() -> None:
    call = [sys.executable, str(DEPLOY / "grafana" / "make.py"), "--check"]
    assert subprocess.run(call, check=False).returncode == 0


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_ask_only_for_what_is_told_and_do_not_overlap(name: str) -> None:
    recorded = {rule["record"] for rule in rules("recording.yml")}
    known = {each["name"] for each in DASHBOARDS[name]["templating"]["list"]}
    taken = set[tuple[int, int]]()
    for panel in DASHBOARDS[name]["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
        for target in panel.get("targets", []):
            assert asked_for(target["expr"]) <= SCRAPED | recorded, panel["title"]
            assert set(re.findall(r"\$(pool|host)", target["expr"])) <= known, panel["title"]


def test_the_promise_comes_first_and_decisions_are_marked() -> None:
    overview = DASHBOARDS["overview"]
    assert overview["panels"][0]["title"] == "The promise"
    assert "penstock_pool_budget_remaining_ratio" in overview["panels"][1]["targets"][0]["expr"]
    (annotation,) = DASHBOARDS["pool"]["annotations"]["list"]
    assert "penstock_decision_target_workers" in annotation["expr"]


def test_dashboards_use_the_data_sources_that_are_provisioned() -> None:
    sources = read("grafana", "provisioning", "datasources", "penstock.yml")["datasources"]
    known = {source["uid"] for source in sources}
    used = {
        panel["datasource"]["uid"]
        for board in DASHBOARDS.values()
        for panel in board["panels"]
        if "datasource" in panel
    }
    (exemplars,) = sources[0]["jsonData"]["exemplarTraceIdDestinations"]
    assert used | {exemplars["datasourceUid"]} <= known
    (provider,) = read("grafana", "provisioning", "dashboards", "penstock.yml")["providers"]
    mounted = [volume.split(":") for volume in watchers()["grafana"]["volumes"]]
    assert ["./deploy/grafana/dashboards", provider["options"]["path"], "ro"] in mounted


def test_every_host_that_is_named_is_a_service_that_is_there() -> None:
    services = yaml.safe_load((HERE / "docker-compose.yml").read_text("utf-8"))["services"]
    config = read("prometheus", "prometheus.yml")
    targets = [
        target.partition(":")[0]
        for job in config["scrape_configs"]
        for found in job.get("static_configs", [])
        for target in found["targets"]
    ]
    targets += [
        n
        for job in config["scrape_configs"]
        for d in job.get("dns_sd_configs", [])
        for n in d["names"]
    ]
    sources = read("grafana", "provisioning", "datasources", "penstock.yml")["datasources"]
    targets += [source["url"].split("/")[2].partition(":")[0] for source in sources]
    targets.append(
        read("collector", "collector.yml")["exporters"]["otlp/jaeger"]["endpoint"].partition(":")[0]
    )
    assert set(targets) <= set(services)


def test_prometheus_asks_at_the_ports_where_services_answer() -> None:
    from penstock.config.settings import Http

    for page in ("prometheus.yml", "up.yml"):
        for job in read("prometheus", page)["scrape_configs"]:
            role = job["job_name"].removeprefix("penstock-")
            if role == job["job_name"]:
                continue
            ports = [
                t.rpartition(":")[2] for f in job.get("static_configs", []) for t in f["targets"]
            ]
            ports += [found["port"] for found in job.get("dns_sd_configs", [])]
            assert {int(port) for port in ports} == {getattr(Http(), f"{role}_port")}


def test_the_collectors_pipelines_are_made_of_declared_parts() -> None:
    config = read("collector", "collector.yml")
    assert set(config["service"]["pipelines"]) == {"traces", "metrics", "logs"}
    for pipeline in config["service"]["pipelines"].values():
        for part, names in pipeline.items():
            assert set(names) <= set(config[part])


def test_watchers_are_published_on_loopback_only_and_pinned() -> None:
    pinned = dict(re.findall(r"^(\w+_TAG)=(\S+)$", (HERE / ".env").read_text("utf-8"), re.M))
    for name, service in watchers().items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        tag = re.fullmatch(r".+:\$\{(\w+)\}", service["image"])
        assert tag, f"{name}: {service['image']}"
        assert re.search(r"\d", pinned[tag[1]])
        for volume in service.get("volumes", ()):
            if volume.startswith("./"):
                assert (HERE / volume.split(":")[0]).exists(), volume
