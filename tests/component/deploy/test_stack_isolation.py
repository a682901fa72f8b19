"""What a container of the compose stack may do, and which others it reaches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
STACK = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVERS = yaml.safe_load((ROOT / "deploy/nats/cluster.yml").read_text("utf-8"))["services"]
SERVICES: dict[str, Any] = STACK["services"]
WHOLE = {**{name: SERVERS[name] for name in ("nats-2", "nats-3")}, **SERVICES}
WRITERS = {"executor", "spark-master", "spark-worker", "spark-connect"}
"""Their root is writable: jobs and Spark unpack beside what is installed."""
WATCHERS = {"collector", "jaeger", "grafana", "prometheus"}


def networks(name: str) -> set[str]:
    if SERVICES[name].get("network_mode") == "none":
        return set()
    return set(SERVICES[name].get("networks", ["default"]))


@pytest.mark.parametrize("name", WHOLE)
def test_no_container_has_more_rights_or_means_than_it_needs(name: str) -> None:
    service = WHOLE[name]
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["pids_limit"] > 0
    assert service["mem_limit"]
    assert service["cpus"]
    assert service.get("read_only", False) is (name not in WRITERS)
    if name == "nats-owner":  # runs before the broker, and reaches no other container
        assert service["cap_add"] == ["CHOWN", "DAC_READ_SEARCH"]
        assert service["network_mode"] == "none"
    else:
        assert "cap_add" not in service
        assert service["user"].split(":")[0] not in ("0", "root")


@pytest.mark.parametrize("name", ["nats", "nats-2", "nats-3"])
def test_a_broker_collects_garbage_before_its_container_is_full(name: str) -> None:
    service = WHOLE[name]
    assert service["mem_limit"] == "1g"
    assert service["environment"]["GOMEMLIMIT"] == "900MiB"


@pytest.mark.parametrize(
    "name", [*sorted(WATCHERS), "decider-a", "metrics", "orchestrator", "demo"]
)
def test_only_executors_and_spark_reach_spark(name: str) -> None:
    for spark in ("spark-master", "spark-worker", "spark-connect"):
        assert networks(spark) == {"spark"}
        assert not networks(name) & networks(spark)


@pytest.mark.parametrize("name", sorted(WATCHERS))
def test_what_watches_does_not_reach_the_broker(name: str) -> None:
    assert not networks(name) & networks("nats")


def test_what_draws_reaches_no_service_of_penstock() -> None:
    for name in ("executor", "decider-a", "decider-b", "metrics", "orchestrator", "tools"):
        assert not (networks("grafana") | networks("jaeger")) & networks(name)


def test_each_reaches_whom_it_asks() -> None:
    services = ("metrics", "decider-a", "decider-b", "orchestrator", "console", "executor")
    asks = {
        "nats": (*services, "tools", "demo"),
        "spark-connect": ("executor",),
        "spark-master": ("spark-worker", "spark-connect", "executor"),
        "collector": (*services, "prometheus"),
        "prometheus": (*services, "grafana"),
        "jaeger": ("collector", "grafana"),
    }
    for server, clients in asks.items():
        assert all(networks(server) & networks(client) for client in clients), server


def test_every_network_is_declared() -> None:
    used = set().union(*map(networks, SERVICES))
    assert used == set(STACK["networks"])
