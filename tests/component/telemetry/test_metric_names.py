"""Metrics: declared once, documented, told by somebody, in the shape both worlds ask for."""

import re
from pathlib import Path

import pytest

from penstock.telemetry import metrics
from penstock.telemetry.metric import Metric
from penstock.telemetry.metrics import ALL

REPOSITORY = Path(__file__).parents[3]
CODE = [
    path.read_text("utf-8")
    for folder in ("shared/src", "services", "cli/src")
    for path in (REPOSITORY / folder).rglob("*.py")
    if path != Path(metrics.__file__)
]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.name)
def test_each_name_is_well_formed_and_says_what_it_means(metric: Metric) -> None:
    assert re.fullmatch(r"penstock(\.[a-z][a-z_]*)+", metric.name)
    assert re.fullmatch(r"penstock(_[a-z]+)+", metric.prometheus)
    assert metric.about.endswith("."), "a sentence"
    assert all(re.fullmatch(r"[a-z_]+", label) for label in metric.labels)


def test_no_name_is_declared_twice() -> None:
    assert len({metric.prometheus for metric in ALL}) == len(ALL)


def test_each_is_published_by_a_service() -> None:
    constants = [name for name, value in vars(metrics).items() if isinstance(value, Metric)]
    silent = [name for name in constants if not any(f"metrics.{name}" in text for text in CODE)]
    assert set(silent) <= {"LOOP_LAG", "SERVICE_CHECK", "BROKEN_READINGS"}, "imported by name"


@pytest.mark.parametrize(
    ("unit", "kind", "expected"),
    [
        ("s", "gauge", "penstock_x_y_seconds"),
        ("By", "gauge", "penstock_x_y_bytes"),
        ("1", "gauge", "penstock_x_y_ratio"),
        ("{job}", "counter", "penstock_x_y"),
        ("{job}/s", "gauge", "penstock_x_y_per_second"),
        ("", "gauge", "penstock_x_y"),
    ],
)
def test_names_as_prometheus_has_them(unit: str, kind: str, expected: str) -> None:
    assert Metric("penstock.x.y", kind, unit, "About.").prometheus == expected
