"""The Spark pool that the stack's settings show commented out, and the file that goes with it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from penstock.config import load
from penstock.config.topology import pools

HERE = Path(__file__).parents[3]


def test_the_example_can_be_taken_as_it_stands(tmp_path: Path) -> None:
    shown = (HERE / "deploy" / "penstock.toml").read_text("utf-8")
    plain, example = shown.split("\n# [cluster]\n")
    settings = tmp_path / "penstock.toml"
    settings.write_text(f"{plain}\n[cluster]\n{re.sub('^# ?', '', example, flags=re.M)}", "utf-8")
    found = pools(load(settings, environment={}))
    [name] = [name for name, pool in found.items() if pool.kind == "spark"]
    assert f"SPARK_POOL={name}\n" in (HERE / ".env").read_text("utf-8")


def test_only_services_that_are_there_are_changed() -> None:
    stack = yaml.safe_load((HERE / "docker-compose.yml").read_text("utf-8"))["services"]
    changes = yaml.safe_load((HERE / "deploy" / "spark" / "pool.yml").read_text("utf-8"))
    assert set(changes["services"]) <= set(stack)
