"""What is expected to arrive in each pool, and what workers and jobs cost."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from penstock.console.api.costs import fixed_fleet_of
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import POOLS as SECTIONS
from penstock.console.parts import Console
from penstock.console.read_models.costs import DAY_SECONDS, pool_costs
from penstock.console.read_models.summaries import function_costs

_STRETCHES = (("24 h", 1), ("7 d", 7), ("14 d", 14))
"""In words and days."""
_MOST_FUNCTIONS = 20


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """This page."""

    @page_at("/costs")
    async def costs(days: FromQuery[int] = 1) -> Response[str]:
        chosen = days if days in dict(_STRETCHES).values() else 1
        names = sorted(console.present.pools)
        by_pool = await pool_costs(console, names, chosen * DAY_SECONDS)
        snapshots = console.present.board.pools
        return pages.page(
            "costs.html",
            "Pools",
            "Forecast and cost",
            sections=SECTIONS,
            forecasts=[(name, snapshots.get(name)) for name in names],
            costs=by_pool,
            fleet=fixed_fleet_of(by_pool, chosen * DAY_SECONDS),
            functions=(await console.read(function_costs))[:_MOST_FUNCTIONS],
            stretches=_STRETCHES,
            days=chosen,
        )

    return (costs,)
