"""Alerts: each has a runbook and a case, asks for what is really told, and comes when it must."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.measuring.budget import FAST_BURN, SLOW_BURN
from penstock.telemetry.metrics import ALL

HERE = Path(__file__).parents[3]
PROMETHEUS = HERE / "deploy" / "prometheus"


def rules(name: str) -> list[dict[str, Any]]:
    groups = yaml.safe_load((PROMETHEUS / name).read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = {rule["alert"]: rule for rule in rules("alerts.yml")}
SCRAPED = {
    f"{metric.prometheus}{suffix}"
    for metric in ALL
    for suffix in {"counter": ["_total"], "gauge": [""]}.get(
        metric.kind, ["_bucket", "_sum", "_count"]
    )
}


def asked_for(expression: str) -> set[str]:
    """The metrics in an expression: names before a selector, or that begin as ours do."""
    return set(
        re.findall(r"\b(?:pool|stream|instance|pool_state):\w+:\w+|\bpenstock_\w+", expression)
    )


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_runbook(alert: str) -> None:
    page = (HERE / "docs" / "operations.md").read_text("utf-8")
    _, _, section = page.partition(f"\n### {alert}\n")
    severity = ALERTS[alert]["labels"]["severity"]
    assert section.lstrip().startswith(f"*{severity.capitalize()}.*")
    assert ALERTS[alert]["annotations"]["runbook"] == f"docs/operations.md#{alert.lower()}"


def test_each_runbook_has_an_alert() -> None:
    page = (HERE / "docs" / "operations.md").read_text("utf-8")
    assert set(re.findall(r"^### (Penstock\w+)$", page, re.M)) == set(ALERTS)


@pytest.mark.parametrize("alert", ALERTS)
def test_each_alert_has_a_case_in_which_it_comes(alert: str) -> None:
    cases = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text("utf-8"))["tests"]
    checks = [check for case in cases for check in case.get("alert_rule_test", [])]
    assert any(check["alertname"] == alert and check["exp_alerts"] for check in checks)


def test_rules_ask_only_for_what_is_told() -> None:
    recorded = {rule["record"] for rule in rules("recording.yml")}
    for rule in [*rules("recording.yml"), *ALERTS.values()]:
        assert asked_for(rule["expr"]) <= SCRAPED | recorded, rule


def test_the_promise_burns_as_fast_here_as_in_the_events() -> None:
    assert ALERTS["PenstockPromiseBurningFast"]["expr"].endswith(f">= {FAST_BURN:g}")
    assert ALERTS["PenstockPromiseBurningSlow"]["expr"].endswith(f">= {SLOW_BURN:g}")


@pytest.mark.parametrize(
    "call",
    [
        ("check", "config", "prometheus.yml", "up.yml"),
        ("check", "rules", "recording.yml", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_agrees(call: tuple[str, ...]) -> None:
    if not (promtool := shutil.which("promtool")):
        pytest.skip("promtool is missing; install Debian's package prometheus")
    ran = subprocess.run(
        [promtool, *call], check=False, cwd=PROMETHEUS, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
