"""Measurements of the last hour as small drawings."""

from __future__ import annotations

import time
from datetime import datetime
from typing import NamedTuple

from penstock.console.core import sparkline
from penstock.console.core.series import Points

HOUR_SECONDS = 3_600


class Line(NamedTuple):
    """A measurement over an hour.

    Attributes:
        path: of an SVG of 100 by 20; empty with fewer than two points.
    """

    path: str
    last: float | None
    largest: float | None


def line(points: Points, column: str, until: datetime | None = None) -> Line:
    """One column of the points of an hour up to a moment, or to now."""
    values = points.values[column] if points.at else []
    measured = [value for value in values if value is not None]
    end = until.timestamp() if until else time.time()
    return Line(
        path=sparkline.path(points.at, values, end - HOUR_SECONDS, end),
        last=measured[-1] if measured else None,
        largest=max(measured, default=None),
    )
