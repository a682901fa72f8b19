"""Saved views: a list under a name, which its owner renames, shares and removes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import MediaType, Response, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.bus.protocol import BusError
from penstock.console.api.views import visible_views
from penstock.console.pages import sections
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import ACTED, AnyRequest, done, refusal, viewer
from penstock.console.pages.forms import MOST_FORM_BYTES, go, read_fields
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.parts import Console
from penstock.console.read_models.saved_views import SavedView
from penstock.console.read_models.saved_views import saved_views as read_views
from penstock.console.web.acting import records_itself
from penstock.console.web.csrf import safe_path
from penstock.console.web.scopes import Scope, needs

_HERE = "/views"
_FORM: dict[str, Any] = {
    # The request to the API that it sends is the one that stands in the audit log.
    "opt": needs(Scope.READ) | records_itself("page.act"),
    "include_in_schema": False,
    "media_type": MediaType.HTML,
    "request_max_body_size": MOST_FORM_BYTES,
}


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages and their forms."""

    async def visible(request: AnyRequest) -> list[SavedView]:
        """The viewer's own and those that others share, by their titles."""
        name = viewer(request).name
        every = (await read_views(console.bus, console.subjects)).values()
        shown = visible_views(viewer(request), every)
        return sorted(shown, key=lambda one: (one.owner != name, one.title.lower()))

    async def page(request: AnyRequest, problem: str = "", status: int = 200) -> Response[str]:
        try:
            views = await visible(request)
        except BusError as error:
            views, problem = [], problem or f"The saved views cannot be read: {error}."
        answer = pages.page(
            "views/list.html",
            "Jobs",
            "My views",
            sections=sections.JOBS,
            views=views,
            viewer=viewer(request),
            refusal=refusal(console, viewer(request), Scope.READ),
            problem=problem,
            acted=done(request),
        )
        answer.status_code = status
        return answer

    @page_at(_HERE)
    async def views(request: AnyRequest) -> Response[str]:
        return await page(request)

    @page_at(f"{_HERE}/menu")
    async def menu(request: AnyRequest) -> Response[str]:
        """A part of other pages, which ask for it when their menu is opened."""
        try:
            shown = await visible(request)
        except BusError:
            shown = []
        return pages.plain("views/menu.html", "My views", 200, views=shown)

    @post(_HERE, **_FORM)
    async def save(request: AnyRequest) -> Response[str]:
        fields = await read_fields(request)
        path = fields.get("path", "")
        body = {"title": fields.get("title", "").strip(), "path": path}
        answer = await through_api.send(request, "POST", "/views", body, fields.get("once", ""))
        if not answer.is_accepted:
            return await page(request, f"Not saved. {answer.problem}", answer.status)
        return go(f"{safe_path(path)}{'&' if '?' in path else '?'}{ACTED}=view.save")

    @post(f"{_HERE}/{{view_id:str}}", **_FORM)
    async def change(request: AnyRequest, view_id: FromPath[str]) -> Response[str]:
        fields = await read_fields(request)
        body = {
            "title": fields.get("title", "").strip(),
            "path": fields.get("path", ""),
            "is_shared": "is_shared" in fields,
        }
        answer = await through_api.send(request, "PUT", f"/views/{view_id}", body)
        if not answer.is_accepted:
            return await page(request, f"Not changed. {answer.problem}", answer.status)
        return go(f"{_HERE}?{ACTED}=view.change")

    @post(f"{_HERE}/{{view_id:str}}/remove", **_FORM)
    async def remove(request: AnyRequest, view_id: FromPath[str]) -> Response[str]:
        answer = await through_api.send(request, "DELETE", f"/views/{view_id}")
        if not answer.is_accepted:
            return await page(request, f"Not removed. {answer.problem}", answer.status)
        return go(f"{_HERE}?{ACTED}=view.remove")

    return views, menu, save, change, remove
