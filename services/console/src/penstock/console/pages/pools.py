"""All pools, and one pool: measurements, reasons, queues, workers, decisions."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.api.endpoint import AsOfText
from penstock.console.api.pools import pool_answer
from penstock.console.pages.acting.buttons import Acts, AnyRequest, acts, done
from penstock.console.pages.rendering import Pages, Topic, Values, page_at
from penstock.console.pages.sections import POOLS as SECTIONS
from penstock.console.pages.time_travel import visit
from penstock.console.parts import Console
from penstock.console.past.past import Past
from penstock.console.read_models.overview import promise_rows
from penstock.console.read_models.queues import queue_items
from penstock.console.read_models.summaries import functions

STRETCHES = (("15 min", 900), ("1 h", 3600), ("6 h", 21_600), ("24 h", 86_400), ("7 d", 604_800))
"""Of the charts, in words and seconds."""
_MOST_FUNCTIONS = 15


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages, and what they are sent while they are open."""

    async def all_values(past: Past | None = None) -> Values:
        view = past or console.present
        queues = await console.read(lambda rows: queue_items(rows, view.settings, past))
        return {"promises": promise_rows(view, queues)}

    pages.add_topic(Topic("pools", ("pools", "hosts"), all_values, {"pools": "pools/rows.html"}))

    @page_at("/pools", answers_as_of=True)
    async def pools(request: AnyRequest, as_of: AsOfText = "") -> Response[str]:
        past = await console.past(as_of)
        return pages.page(
            "pools.html",
            "Pools",
            "Pools",
            ("pools",),
            await visit(console, request, past.standing.past if past else None),
            sections=SECTIONS,
            **await all_values(past),
        )

    @page_at("/pools/{name:str}", answers_as_of=True)
    async def pool(
        request: AnyRequest,
        name: FromPath[str],
        seconds: FromQuery[int] = 900,
        as_of: AsOfText = "",
    ) -> Response[str]:
        past = await console.past(as_of)
        answer = await pool_answer(console, name, past)
        if answer is None:
            raise NotFoundException(f"there is no pool {name!r}")
        queues = [queue.queue for queue in answer.queues]
        decided = (past or console.present).board.decisions.get(name)
        possible = ("pool.hold", "pool.release") if answer.promise.hold else ("pool.hold",)
        return pages.page(
            "pool.html",
            "Pools",
            f"Pool {name}",
            visit=await visit(console, request, answer.standing.past),
            answer=answer,
            steps=decided.reasons if decided else (),
            functions=(
                (await console.read(lambda rows: functions(rows, queues)))[:_MOST_FUNCTIONS]
                if queues and past is None
                else []
            ),
            stretches=STRETCHES,
            seconds=seconds if seconds in dict(STRETCHES).values() else STRETCHES[0][1],
            acts=Acts() if past else acts(console, request, possible, name),
            acted=done(request),
        )

    return pools, pool
