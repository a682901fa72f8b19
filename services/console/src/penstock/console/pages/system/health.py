"""The installation itself: health, streams, events, settings."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from penstock.console.api.endpoint import DEFAULT_LIMIT
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import SYSTEM as SECTIONS
from penstock.console.parts import Console
from penstock.console.read_models import installation
from penstock.console.read_models.overview import overview
from penstock.console.read_models.settings_rows import setting_rows
from penstock.operations import settings_in_force

NOUNS = ("job", "pool", "host", "worker", "batch", "graph", "queue", "decider")
_FOLDERS = {
    "pool": "pools",
    "host": "capacity",
    "worker": "capacity/workers",
    "batch": "batches",
    "graph": "workflows",
    "queue": "queues",
}
"""Where what an event is about has a page."""
_AREA = "System"


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @page_at("/system")
    async def system() -> Response[str]:
        return pages.page(
            "system.html",
            _AREA,
            "Health",
            sections=SECTIONS,
            standing=console.standing,
            attention=(await overview(console)).attention,
            streams=await installation.streams(console),
            services=await installation.running_services(console),
        )

    @page_at("/events")
    async def events(noun: FromQuery[str] = "") -> Response[str]:
        wanted = noun if noun in NOUNS else ""
        newest = await installation.newest_events(console, wanted, DEFAULT_LIMIT)
        return pages.page(
            "events.html",
            _AREA,
            "Events",
            sections=SECTIONS,
            events=newest,
            noun=wanted,
            nouns=NOUNS,
            folders=_FOLDERS,
        )

    @page_at("/settings")
    async def settings(every: FromQuery[bool] = False) -> Response[str]:
        running = await settings_in_force.services(console.bus, console.subjects)
        return pages.page(
            "settings.html",
            _AREA,
            "Settings",
            sections=SECTIONS,
            rows=setting_rows(running, with_defaults=every),
            services=running,
            names={one.name for one in running},
            every=every,
        )

    return system, events, settings
