"""Writes dashboards/*.json: what people look at, from the few words that each panel needs.

python deploy/grafana/make.py            writes them
python deploy/grafana/make.py --check    compares; exit code 1 when one is out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from installation import BROKER, HOSTS, OVERVIEW_WORKERS, WORKERS, WORKFLOWS
from panel import GOOD, POOL, Panel, Row
from pools import LINE, POOL_DECISIONS, POOL_FUNCTIONS, POOL_JOBS, POOL_TIMES, PROMISE

HERE = Path(__file__).parent / "dashboards"
PROMETHEUS = {"type": "prometheus", "uid": "prometheus"}
ROW_UNITS = 24
"""A dashboard is that wide."""

DECISIONS = "changes(penstock_decision_target_workers{" + POOL + "}[$__interval]) > 0"

DASHBOARDS: Mapping[str, tuple[str, tuple[Row, ...], tuple[str, ...]]] = {
    "overview": ("Penstock: overview", (PROMISE, LINE, OVERVIEW_WORKERS, WORKFLOWS), ("pool",)),
    "pool": (
        "Penstock: a pool",
        (PROMISE, POOL_DECISIONS, POOL_TIMES, LINE, POOL_JOBS, POOL_FUNCTIONS),
        ("pool",),
    ),
    "hosts": ("Penstock: hosts and workers", (HOSTS, WORKERS), ("host", "pool")),
    "nats": ("Penstock: NATS and services", (BROKER,), ()),
}
VARIABLES = {
    "pool": "label_values(penstock_pool_promised_seconds, pool)",
    "host": "label_values(penstock_host_cpu, host)",
}


def main(arguments: list[str]) -> int:
    texts = {HERE / f"{name}.json": text(name) for name in DASHBOARDS}
    if arguments != ["--check"]:
        for path, made in texts.items():
            path.write_text(made, "utf-8")
        return 0
    stale = [p.name for p, made in texts.items() if not p.is_file() or p.read_text("utf-8") != made]
    if stale:
        sys.stderr.write(f"out of date: {', '.join(stale)}; run: python deploy/grafana/make.py\n")
    return bool(stale)


def text(name: str) -> str:
    """A dashboard's file."""
    return json.dumps(dashboard(name), indent=1, ensure_ascii=False) + "\n"


def dashboard(name: str) -> dict[str, Any]:
    title, rows, variables = DASHBOARDS[name]
    return {
        "uid": f"penstock-{name}",
        "title": title,
        "tags": ["penstock"],
        "schemaVersion": 39,
        "refresh": "5s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "graphTooltip": 1,
        "links": [
            {"type": "dashboards", "tags": ["penstock"], "title": "Penstock", "keepTime": True}
        ],
        "annotations": {"list": [_decisions()] if "pool" in variables else []},
        "templating": {"list": [_variable(variable) for variable in variables]},
        "panels": list(_panels(rows)),
    }


def _decisions() -> dict[str, Any]:
    return {
        "name": "Decisions",
        "datasource": PROMETHEUS,
        "enable": True,
        "iconColor": "blue",
        "expr": DECISIONS,
        "titleFormat": "{{pool}}: another number of workers",
        "step": "15s",
    }


def _variable(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": PROMETHEUS,
        "query": {"query": VARIABLES[name], "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels(rows: Iterable[Row]) -> Iterable[dict[str, Any]]:
    number = y = 0
    for row in rows:
        x = height = 0
        number += 1
        place = {"h": 1, "w": ROW_UNITS, "x": 0, "y": y}
        yield {"id": number, "type": "row", "title": row.title, "gridPos": place, "panels": []}
        y += 1
        for panel in row.panels:
            if x + panel.width > ROW_UNITS:
                x, y, height = 0, y + height, 0
            number += 1
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            yield _panel(panel, number, place)
            x, height = x + panel.width, max(height, panel.height)
        y += height


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    steps = panel.steps or ((None, GOOD),)
    instant = panel.kind in {"table", "stat", "gauge", "bargauge"}
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": PROMETHEUS,
        "gridPos": place,
        "targets": [
            {
                "refId": chr(ord("A") + nth),
                "expr": expression,
                "legendFormat": legend,
                "exemplar": panel.exemplars,
                "instant": instant,
                "range": not instant,
                "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
            }
            for nth, (expression, legend) in enumerate(panel.asks)
        ],
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "custom": {"stacking": {"mode": "normal" if panel.stacked else "none"}},
                "thresholds": {
                    "mode": "absolute",
                    "steps": [{"value": value, "color": color} for value, color in steps],
                },
            },
            "overrides": [],
        },
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
