"""Definitions of declared workflows, and how runs of each kind of graph ended."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.handlers import HTTPRouteHandler

from penstock.console.api.workflows import definition_item
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import WORKFLOWS as SECTIONS
from penstock.console.parts import Console
from penstock.console.read_models.summaries import shapes


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """This page."""

    @page_at("/definitions")
    async def definitions() -> Response[str]:
        stored = await console.client.definitions.all()
        return pages.page(
            "definitions.html",
            "Workflows",
            "Definitions",
            sections=SECTIONS,
            definitions=[definition_item(one) for one in stored],
            shapes=await console.read(shapes),
        )

    return (definitions,)
