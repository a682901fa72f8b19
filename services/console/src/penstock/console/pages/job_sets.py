"""Jobs that belong together: the stuck ones, those of muted functions, those of a tag."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from penstock.console.api.endpoint import DEFAULT_LIMIT
from penstock.console.api.muted import muted_item
from penstock.console.api.stuck import StuckAnswer
from penstock.console.pages import sections
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import AnyRequest, acts, done
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.parts import Console
from penstock.console.read_models.failures import newest_failures
from penstock.console.read_models.summaries import tag_items

_AREA = "Jobs"


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @page_at("/stuck")
    async def stuck(request: AnyRequest) -> Response[str]:
        answer = await through_api.send(request, "GET", "/stuck")
        listing = msgspec.json.decode(answer.body, type=StuckAnswer) if answer.is_accepted else None
        items = listing.items if listing else []
        return pages.page(
            "stuck.html",
            _AREA,
            "Stuck jobs",
            sections=sections.JOBS,
            listing=listing,
            problem=answer.problem,
            threshold=console.present.settings.stuck.threshold,
            acts={one.job_id: acts(console, request, ["job.recover"], one.job_id) for one in items},
        )

    @page_at("/silenced")
    async def silenced(request: AnyRequest, cursor: FromQuery[str] = "") -> Response[str]:
        muted = console.alerts.book.muted
        groups, after = await newest_failures(console, DEFAULT_LIMIT, cursor, silenced=True)
        return pages.page(
            "silenced.html",
            _AREA,
            "Silenced",
            sections=sections.JOBS,
            muted=[muted_item(one) for one in reversed(muted.values())],
            groups=groups,
            cursor=cursor,
            after=after,
            acts={name: acts(console, request, ["function.unmute"], name) for name in muted},
            acted=done(request),
        )

    @page_at("/tags")
    async def tags() -> Response[str]:
        items = await console.read_once(tag_items)
        return pages.page("tags.html", _AREA, "Tags", sections=sections.JOBS, items=items)

    return stuck, silenced, tags
