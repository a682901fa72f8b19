"""What each container is made of, and what it may."""

from __future__ import annotations

import json
import tomllib

import pytest
from tests.compose.stack import OURS, ROOT, SPARK, Stack, docker

BASE = "debian:bookworm-slim"
SMALL_BYTES = 150_000_000
_ENDING_SECONDS = 20
"""What an executor takes beyond its drain: killing who stayed, Spark's end, last words."""


@pytest.mark.parametrize("service", ["metrics", "decider-a"])
def test_images_without_spark_are_small(stack: Stack, service: str) -> None:
    [container] = stack.containers(service)
    assert _bytes(stack.inspect(container)["Image"]) - _bytes(BASE) < SMALL_BYTES


@pytest.mark.parametrize("service", [*OURS, *SPARK])
def test_containers_run_without_rights_and_with_limits(stack: Stack, service: str) -> None:
    found = stack.inspect(stack.containers(service)[0])
    config = found["HostConfig"]
    assert found["Config"]["User"].split(":")[0] == str(stack.uid)
    assert config["CapDrop"] == ["ALL"]
    assert "no-new-privileges:true" in config["SecurityOpt"]
    assert config["Memory"] > 0
    assert config["NanoCpus"] > 0
    assert config["PidsLimit"] > 0
    assert found["Config"]["Entrypoint"][0] == "/usr/bin/tini"


def test_only_loopback_is_published(stack: Stack) -> None:
    for service in (*OURS, *SPARK, "nats"):
        for container in stack.containers(service):
            bound = stack.inspect(container)["HostConfig"]["PortBindings"] or {}
            addresses = {each["HostIp"] for places in bound.values() for each in places}
            assert addresses <= {"127.0.0.1"}, service


def test_executors_have_longer_to_end_than_their_workers(stack: Stack) -> None:
    [container, *_] = stack.containers("executor")
    shipped = tomllib.loads((ROOT / "deploy/penstock.toml").read_text("utf-8"))
    drain = shipped["host"]["drain_seconds"]
    assert stack.inspect(container)["Config"]["StopTimeout"] >= drain + _ENDING_SECONDS


def _bytes(image: str) -> int:
    return int(json.loads(docker("image", "inspect", image))[0]["Size"])
