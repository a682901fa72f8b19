"""Queues: what waits in each, which pool serves it, and which are paused; and one with its jobs."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.api.endpoint import DEFAULT_LIMIT, AsOfText
from penstock.console.api.jobs import job_page
from penstock.console.core.job_query import JobQuery
from penstock.console.pages.acting.buttons import AnyRequest, acts, done, refusal, viewer
from penstock.console.pages.lines import HOUR_SECONDS, line
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import POOLS as SECTIONS
from penstock.console.pages.time_travel import visit
from penstock.console.parts import Console
from penstock.console.read_models.queues import queue_items
from penstock.console.web.scopes import Scope


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @page_at("/queues", answers_as_of=True)
    async def queues(request: AnyRequest, as_of: AsOfText = "") -> Response[str]:
        past = await console.past(as_of)
        items = await console.read(lambda rows: queue_items(rows, console.present.settings, past))
        against = refusal(console, viewer(request), Scope.QUEUES)
        return pages.page(
            "queues.html",
            "Pools",
            "Queues",
            visit=await visit(console, request, past.standing.past if past else None),
            sections=SECTIONS,
            queues=items,
            refusal=against,
            may_act=bool(items) and not against and past is None,
            acts={
                item.queue: acts(
                    console,
                    request,
                    ["queue.resume" if item.paused_since else "queue.pause"],
                    item.queue,
                )
                for item in items
            },
            acted=done(request),
        )

    @page_at("/queues/{name:str}")
    async def queue(request: AnyRequest, name: FromPath[str]) -> Response[str]:
        items = await console.read(lambda rows: queue_items(rows, console.present.settings))
        item = next((one for one in items if one.queue == name), None)
        if item is None:
            raise NotFoundException(f"queue {name[:80]!r} is not configured and holds no jobs")
        points = await console.points("queue", name, HOUR_SECONDS)
        return pages.page(
            "queue.html",
            "Pools",
            f"Queue {name}",
            sections=SECTIONS,
            queue=item,
            ended=line(points, "finished_per_minute"),
            failed=line(points, "failed_per_minute"),
            jobs=await job_page(console, JobQuery(queue=name), DEFAULT_LIMIT, ""),
            acts=acts(
                console, request, ["queue.resume" if item.paused_since else "queue.pause"], name
            ),
        )

    return queues, queue
