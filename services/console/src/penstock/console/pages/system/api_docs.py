"""The API on a page: each endpoint, what it does, the scope it needs, and how it is audited."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from litestar import Litestar, Response
from litestar.handlers import HTTPRouteHandler
from litestar.routes import HTTPRoute

from penstock.console.api.router import PATH
from penstock.console.pages.acting.buttons import AnyRequest
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import SYSTEM as SECTIONS
from penstock.console.parts import Console
from penstock.console.web.acting import action_of
from penstock.console.web.scopes import scope_of


class Endpoint(NamedTuple):
    """An endpoint of the API.

    Attributes:
        path: below ``/api/v1``, with its parameters in braces.
        action: under which it stands in the audit log; empty where it does not.
    """

    group: str
    method: str
    path: str
    about: str
    scope: str
    action: str


def routes(_: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """This page."""

    @page_at("/api-docs")
    async def api_docs(request: AnyRequest) -> Response[str]:
        ordered = sorted(endpoints(request.app))
        return pages.page(
            "api_docs.html",
            "System",
            "API",
            sections=SECTIONS,
            root=PATH,
            groups=[(name, list(some)) for name, some in groupby(ordered, lambda one: one.group)],
            count=len(ordered),
        )

    return (api_docs,)


def endpoints(app: Litestar) -> Iterator[Endpoint]:
    """All that an application serves below the API's root and describes."""
    for route in app.routes:
        if not isinstance(route, HTTPRoute) or not route.path_format.startswith(f"{PATH}/"):
            continue
        path = route.path_format.removeprefix(PATH)
        for handler in route.route_handlers:
            about = handler.description or inspect.getdoc(handler.fn) or ""
            if not about or not handler.include_in_schema:
                continue
            for method in handler.http_methods - {"OPTIONS", "HEAD"}:
                yield Endpoint(
                    group=path.split("/")[1],
                    method=str(method),
                    path=path,
                    about=about.partition("\n\n")[0].replace("\n", " ").replace("`", ""),
                    scope=str(scope_of(handler.opt) or ""),
                    action=action_of(handler.opt),
                )
