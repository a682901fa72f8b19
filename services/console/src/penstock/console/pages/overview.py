"""The first page: promises, what needs attention, decisions, capacity."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from litestar import Response
from litestar.handlers import HTTPRouteHandler

from penstock.console.api.costs import against_fixed_fleet
from penstock.console.api.endpoint import AsOfText
from penstock.console.core import sparkline
from penstock.console.core.series import Points
from penstock.console.pages.rendering import Pages, Topic, Values, page_at
from penstock.console.pages.time_travel import AnyRequest, visit
from penstock.console.parts import Console
from penstock.console.past.past import Past
from penstock.console.read_models import overview as model
from penstock.console.read_models.costs import DAY_SECONDS
from penstock.console.read_models.store import Snapshot

_SPARK_SECONDS = 1800.0
_PARTS = {
    "attention": "overview/attention.html",
    "promises": "overview/promises.html",
    "decisions": "overview/decisions.html",
    "capacity": "overview/capacity.html",
    "totals": "overview/totals.html",
}


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """This page, and what it is sent while it is open."""

    async def values() -> Values:
        shown = await model.overview(console)
        now = time.time()
        points = {
            pool.pool: console.measurements.recent_points("pool", pool.pool, _SPARK_SECONDS)
            for pool in shown.promises
        }
        return {"overview": shown, "sparks": _waiting(points, now)}

    async def values_then(past: Past) -> Values:
        shown = await model.overview(console, past)
        until = past.moment.timestamp()

        def stored(rows: Snapshot) -> Mapping[str, Points]:
            read = console.measurements.stored_points
            names = [pool.pool for pool in shown.promises]
            return {name: read(rows, "pool", name, _SPARK_SECONDS, until) for name in names}

        return {"overview": shown, "sparks": _waiting(await console.read(stored), until)}

    pages.add_topic(Topic("overview", ("log", "pools", "hosts"), values, _PARTS))

    @page_at("/", answers_as_of=True)
    async def overview(request: AnyRequest, as_of: AsOfText = "") -> Response[str]:
        past = await console.past(as_of)
        return pages.page(
            "overview.html",
            "Overview",
            "Overview",
            ("overview",),
            await visit(console, request, past.standing.past if past else None),
            cost=None if past else await against_fixed_fleet(console, DAY_SECONDS),
            **(await values_then(past) if past else await values()),
        )

    return (overview,)


def _waiting(points: Mapping[str, Points], until: float) -> dict[str, str]:
    """The waiting jobs of each pool up to a second, as small lines."""
    since = until - _SPARK_SECONDS
    return {
        pool: sparkline.path(lately.at, lately.values["waiting"], since, until)
        for pool, lately in points.items()
    }
