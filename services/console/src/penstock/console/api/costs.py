"""Forecasts of arrivals, and what workers cost against a fleet of fixed size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from litestar.params import QueryParameter

from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.core.worker_hours import PoolCost
from penstock.console.parts import Console
from penstock.console.read_models.costs import DAY_SECONDS, pool_costs
from penstock.console.read_models.summaries import FunctionCost, function_costs
from penstock.console.web.access import ChangesWith
from penstock.events.snapshot import Forecast

Within = Annotated[
    float,
    QueryParameter(ge=60, le=14 * DAY_SECONDS, description="Length of the stretch up to now, s."),
]


class PoolForecast(msgspec.Struct, frozen=True, kw_only=True):
    """Arrivals that are expected in a pool; None where there is no forecast yet."""

    pool: str
    arrival_per_second: float | None
    forecast: Forecast | None


class ForecastAccuracy(msgspec.Struct, frozen=True, kw_only=True):
    """How good the forecasts of a pool were lately.

    Attributes:
        relative_loss: quantile loss over that of the present rate; below 1 is better.
        off: why no forecast is used; empty where one is.
    """

    pool: str
    model: str
    relative_loss: float | None
    off: str


class FixedFleet(msgspec.Struct, frozen=True, kw_only=True):
    """All pools against fleets that always have the workers of their busiest moment.

    Attributes:
        saved_share: 0 to 1; None where no worker was needed.
    """

    within_seconds: float
    worker_hours: float
    fixed_fleet_worker_hours: float
    saved_share: float | None


async def against_fixed_fleet(console: Console, within_seconds: float) -> FixedFleet:
    """All pools together, against fleets of fixed size."""
    costs = await pool_costs(console, sorted(console.present.pools), within_seconds)
    return fixed_fleet_of(costs, within_seconds)


def fixed_fleet_of(costs: Sequence[PoolCost], within_seconds: float) -> FixedFleet:
    """What these pools cost together within a stretch, against fleets of fixed size."""
    hours = sum(one.worker_hours for one in costs)
    fixed = sum(one.fixed_fleet_worker_hours for one in costs)
    return FixedFleet(
        within_seconds=within_seconds,
        worker_hours=hours,
        fixed_fleet_worker_hours=fixed,
        saved_share=1 - hours / fixed if fixed else None,
    )


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/forecasts", source=ChangesWith.PRESENT)
    async def forecasts() -> Listing[PoolForecast]:
        """Arrivals that are expected in each pool."""
        snapshots = console.present.board.pools
        items = [
            PoolForecast(
                pool=pool,
                arrival_per_second=snapshot.arrival_per_second if snapshot else None,
                forecast=snapshot.forecast if snapshot else None,
            )
            for pool in sorted(console.present.pools)
            for snapshot in [snapshots.get(pool)]
        ]
        return whole(console, items)

    @read("/forecasts/accuracy", source=ChangesWith.PRESENT)
    async def accuracy() -> Listing[ForecastAccuracy]:
        """How good the forecasts were lately, of pools that have one."""
        items = [
            ForecastAccuracy(
                pool=pool,
                model=snapshot.forecast.model,
                relative_loss=snapshot.forecast.relative_loss,
                off=snapshot.forecast.off,
            )
            for pool, snapshot in sorted(console.present.board.pools.items())
            if snapshot.forecast
        ]
        return whole(console, items)

    @read("/cost")
    async def cost(within: Within = DAY_SECONDS) -> Listing[PoolCost]:
        """Worker-hours of each pool, from its decisions."""
        return whole(console, await pool_costs(console, sorted(console.present.pools), within))

    @read("/cost/fixed-fleet")
    async def fixed_fleet(within: Within = DAY_SECONDS) -> FixedFleet:
        """All pools together, against fleets of fixed size."""
        return await against_fixed_fleet(console, within)

    @read("/cost/jobs", source=ChangesWith.LOG)
    async def job_costs() -> Listing[FunctionCost]:
        """Run time by function, among the newest 20,000 jobs that completed."""
        return whole(console, await console.read(function_costs))

    return forecasts, accuracy, cost, fixed_fleet, job_costs
