"""What services measure: every metric, and the last measurements of each pool as published."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec
from litestar import Response, get
from litestar.handlers import HTTPRouteHandler

from penstock.console.api.metrics import metric_items
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import SYSTEM as SECTIONS
from penstock.console.parts import Console
from penstock.console.web.scopes import Scope, needs

_AREA = "System"
_OF_THE_EVENT = ("type", "id")
"""Fields of each event, that measure nothing."""
_UNSAFE = ("=", "+", "-", "@", "\t", "\r")
"""What a cell may not begin with: a spreadsheet would calculate it."""


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages, and the measurements as a file."""

    @page_at("/metrics-catalog")
    async def metrics() -> Response[str]:
        return pages.page(
            "metrics.html", _AREA, "Metrics", sections=SECTIONS, metrics=metric_items()
        )

    @page_at("/records")
    async def records() -> Response[str]:
        columns, lines = _table(console)
        return pages.page(
            "records.html", _AREA, "Records", sections=SECTIONS, columns=columns, lines=lines
        )

    @get("/records.csv", opt=needs(Scope.READ), include_in_schema=False)
    async def download() -> Response[str]:
        columns, lines = _table(console)
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow(["measurement", *columns])
        writer.writerows([name, *map(_cell, values)] for name, values in lines)
        headers = {"Content-Disposition": 'attachment; filename="records.csv"'}
        return Response(file.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)

    return metrics, records, download


def _table(console: Console) -> tuple[list[str], list[tuple[str, list[object]]]]:
    """Pools as columns; a line for each measurement that one of them has."""
    board = console.present.board.pools
    pools = sorted(board)
    flat = [dict(_flat(msgspec.to_builtins(board[pool]))) for pool in pools]
    names = dict.fromkeys(name for one in flat for name in one if name not in _OF_THE_EVENT)
    return pools, [(name, [one.get(name) for one in flat]) for name in names]


def _flat(value: object, prefix: str = "") -> list[tuple[str, object]]:
    """``{"pickup": {"count": 3}}`` as ``pickup.count``; lists as one text."""
    if isinstance(value, dict):
        return [
            pair
            for name, part in value.items()
            for pair in _flat(part, f"{prefix}.{name}" if prefix else str(name))
        ]
    if isinstance(value, (list, tuple)):
        return [(prefix, ", ".join(map(str, value)))]
    return [(prefix, value)]


def _cell(value: object) -> object:
    """Text that a spreadsheet takes as text."""
    if isinstance(value, str) and value.startswith(_UNSAFE):
        return f"'{value}"
    return "" if value is None else value
