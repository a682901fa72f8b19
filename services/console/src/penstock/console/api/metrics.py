"""Metrics: what is measured, the values now, and their series."""

from __future__ import annotations

from typing import Literal

import msgspec
from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.params import FromQuery

from penstock.console.api.endpoint import Listing, Routes, SeriesSeconds, read, whole
from penstock.console.core.series import Points
from penstock.console.live.scraped_page import ScrapedPage
from penstock.console.parts import Console
from penstock.console.web.access import ChangesWith
from penstock.events.snapshot import PoolSnapshot
from penstock.telemetry import metrics as declared

_TEXT = "text/plain; version=0.0.4"


class MetricItem(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that services publish.

    Attributes:
        unit: UCUM.
        prometheus: its name where it is scraped.
    """

    name: str
    kind: str
    unit: str
    about: str
    labels: tuple[str, ...]
    published_by: str
    prometheus: str


def metric_items() -> list[MetricItem]:
    """All that are declared."""
    names = MetricItem.__struct_fields__
    return [MetricItem(**{name: getattr(one, name) for name in names}) for one in declared.ALL]


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/metrics/catalog")
    async def catalog() -> Listing[MetricItem]:
        """All metrics that services publish."""
        return whole(console, metric_items())

    @read("/metrics/series")
    async def series(
        kind: FromQuery[Literal["pool", "host", "queue"]],
        name: FromQuery[str],
        seconds: SeriesSeconds = 900,
    ) -> Points:
        """A pool, host or queue over time: each point the largest value of its stretch."""
        points = await console.points(kind, name, seconds)
        if not points.at:
            raise NotFoundException(f"nothing of {kind} {name!r} was measured within {seconds} s")
        return points

    @read("/metrics/records", source=ChangesWith.PRESENT)
    async def records() -> Listing[PoolSnapshot]:
        """The last measurements of each pool, as they were published."""
        board = console.present.board.pools
        return whole(console, [board[name] for name in sorted(board)])

    page = ScrapedPage(console)

    @read("/metrics/prometheus", media_type=_TEXT)
    async def prometheus() -> Response[bytes]:
        """Pools, hosts and decisions as they are now, and this console, to be scraped.

        Names and labels are those of the services' own `/metrics`. Counters and histograms of
        attempts are not there: they are counted by the metrics service alone.
        """
        return Response(await page.text(), media_type=_TEXT)

    return catalog, series, records, prometheus
