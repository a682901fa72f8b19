"""One search for whatever has a name or an id; the palette shows its results, too."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from penstock.console.api.endpoint import AsOfText
from penstock.console.core.job_query import BadFilter, JobQuery, read
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.time_travel import AnyRequest, visit
from penstock.console.parts import Console
from penstock.console.past.moments import AsOf
from penstock.console.read_models.search import find

_MOST_LETTERS = 200
_OF_NOW = "what is found is what there is now; its links lead to pages as of that moment"


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """This page."""

    @page_at("/search", answers_as_of=True)
    async def search(
        request: AnyRequest, q: FromQuery[str] = "", as_of: AsOfText = ""
    ) -> Response[str]:
        moment = console.history.moment(as_of)
        past = AsOf(moment=moment, notes=(_OF_NOW,)) if moment else None
        words = q.strip()[:_MOST_LETTERS]
        return pages.page(
            "search.html",
            "",
            "Search",
            visit=await visit(console, request, past),
            words=words,
            hits=await find(console, words) if words else [],
            filter=_as_filter(words),
        )

    return (search,)


def _as_filter(words: str) -> str:
    """The words as a filter of jobs; empty where they are none."""
    try:
        return read(words).words
    except BadFilter:
        return JobQuery(text=words).words
