"""A report as one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

from jinja2 import Environment, PackageLoader, StrictUndefined

from penstock.pipeline.core.report import PoolReport, Report
from penstock.pipeline.pages.picture import draw

MOST_PICTURES = 40
"""Pools with charts: those furthest from their promise and the most expensive ones."""


def page(report: Report) -> str:
    """HTML. All text is escaped: names and reasons come from outside."""
    environment = Environment(
        loader=PackageLoader("penstock.pipeline.pages", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "seconds": _seconds,
        "share": _share,
        "clock": _clock,
        "picture": _picture,
    }
    pools = sorted(report.pools, key=_by_trouble)
    template = environment.get_template("report.html.j2")
    return template.render(report=report, pools=pools, shown=pools[:MOST_PICTURES])


def _by_trouble(pool: PoolReport) -> tuple[bool, float, float]:
    return pool.kept is not False, -pool.late_share, -(pool.worker_hours or 0.0)


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value < 10 else f"{value:,.0f} s"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _picture(pool: PoolReport) -> str:
    return "data:image/png;base64," + base64.b64encode(draw(pool)).decode("ascii")
