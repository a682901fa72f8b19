"""Schedules, and one with its next times and the jobs of its last ones."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.api.endpoint import DEFAULT_LIMIT
from penstock.console.api.jobs import job_page
from penstock.console.api.schedules import schedule_item, ticks
from penstock.console.core.job_query import JobQuery
from penstock.console.pages.acting.buttons import Acts, AnyRequest, acts, done, refusal, viewer
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import WORKFLOWS as SECTIONS
from penstock.console.parts import Console
from penstock.console.read_models.schedule_list import schedules
from penstock.console.web.scopes import Scope
from penstock.events.envelope import utc_now
from penstock.jobs.errors import NotFound

_AREA = "Workflows"
_SHOWN_TICKS = 10


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    def possible(request: AnyRequest, name: str, is_paused: bool) -> Acts:
        turning = "schedule.resume" if is_paused else "schedule.pause"
        return acts(console, request, ("schedule.run", turning), name)

    @page_at("/schedules")
    async def all_schedules(request: AnyRequest) -> Response[str]:
        items = await schedules(console)
        against = refusal(console, viewer(request), Scope.SCHEDULES)
        return pages.page(
            "schedules.html",
            _AREA,
            "Schedules",
            sections=SECTIONS,
            items=items,
            refusal=against,
            may_act=bool(items) and not against,
            acts={item.name: possible(request, item.name, item.is_paused) for item in items},
            acted=done(request),
        )

    @page_at("/schedules/{name:str}")
    async def schedule(request: AnyRequest, name: FromPath[str]) -> Response[str]:
        try:
            stored = await console.client.schedules.get(name)
        except NotFound:
            raise NotFoundException(f"there is no schedule {name[:80]!r}") from None
        query = JobQuery(tag=f"schedule:{stored.name}")
        item = schedule_item(stored, utc_now())
        return pages.page(
            "schedule.html",
            _AREA,
            f"Schedule {stored.name}",
            sections=SECTIONS,
            schedule=item,
            ticks=ticks(stored, utc_now())[:_SHOWN_TICKS],
            jobs=await job_page(console, query, DEFAULT_LIMIT, ""),
            words=query.words,
            acts=possible(request, stored.name, item.is_paused),
        )

    return all_schedules, schedule
