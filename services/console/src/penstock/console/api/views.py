"""Saved views: a page with its filter, under a name; one's own, and those that others share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.params import FromPath, JSONBody

from penstock.bus.protocol import WrongSequence
from penstock.console.api.access.caller import caller_of
from penstock.console.api.acts.receipt import ApiRequest
from penstock.console.api.argument_search import shown_path
from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.parts import Console
from penstock.console.read_models.saved_views import SavedView, saved_views, store
from penstock.console.web.acting import act, acting
from penstock.console.web.conflict import Conflict
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.envelope import new_id
from penstock.events.saved_view import ViewEvent, ViewRemoved, ViewSaved

MOST_VIEWS = 200
"""Of one owner."""


class ViewInput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A view as it is saved.

    Attributes:
        path: of a page of this console with its query, such as `/jobs?q=state:dead`.
        is_shared: whether others see it, too; only its owner changes it.
    """

    title: Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
    path: Annotated[str, msgspec.Meta(pattern=r"^/([^/\\\s][^\\\s]*)?$", max_length=2_000)]
    is_shared: bool = False


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    bus, subjects = console.bus, console.subjects

    async def own(request: ApiRequest, view_id: str) -> SavedView:
        """A view that the caller may change. Raises NotFoundException, PermissionDenied…"""
        name = _name(request)
        view = (await saved_views(bus, subjects)).get(view_id)
        if view is None or not (view.is_shared or view.owner == name):
            raise NotFoundException(f"there is no view {view_id[:64]!r}")
        if view.owner != name:
            raise PermissionDeniedException(f"{view.owner} saved this view, and alone changes it")
        return view

    async def stored(request: ApiRequest, event: ViewEvent, version: int) -> int:
        acting(request).target = f"view:{event.view_id}"
        try:
            return await store(bus, subjects, event, version)
        except WrongSequence:
            raise Conflict("it changed meanwhile; try again") from None

    async def save(
        request: ApiRequest, view_id: str, data: ViewInput, version: int = 0
    ) -> SavedView:
        name = _name(request)
        if data.is_shared and request.scope["state"]["principal"].kind == "local":
            raise PermissionDeniedException(
                "a view is shared by who logged in, or has a token: it shows who shares it"
            )
        event = ViewSaved(
            view_id=view_id,
            by=name,
            owner=name,
            title=data.title,
            path=data.path,
            is_shared=data.is_shared,
            source="console",
        )
        return SavedView(
            id=view_id,
            owner=name,
            title=data.title,
            path=data.path,
            is_shared=data.is_shared,
            saved_at=event.at,
            version=await stored(request, event, version),
        )

    @read("/views")
    async def views(request: ApiRequest) -> Listing[SavedView]:
        """The caller's own views and those that others share, the last saved first."""
        every = reversed((await saved_views(bus, subjects)).values())
        return whole(console, visible_views(caller_of(request), every))

    @act("POST", "/views", Scope.READ, "view.save")
    async def new_view(request: ApiRequest, data: JSONBody[ViewInput]) -> SavedView:
        """Saves a view."""
        every = (await saved_views(bus, subjects)).values()
        if sum(one.owner == _name(request) for one in every) >= MOST_VIEWS:
            raise Conflict(f"at most {MOST_VIEWS} views; remove one")
        return await save(request, new_id(), data)

    @act("PUT", "/views/{view_id:str}", Scope.READ, "view.change")
    async def change_view(
        request: ApiRequest, view_id: FromPath[str], data: JSONBody[ViewInput]
    ) -> SavedView:
        """Replaces one of the caller's views."""
        view = await own(request, view_id)
        return await save(request, view.id, data, view.version)

    @act("DELETE", "/views/{view_id:str}", Scope.READ, "view.remove", status_code=204)
    async def remove_view(request: ApiRequest, view_id: FromPath[str]) -> None:
        """Removes one of the caller's views."""
        view = await own(request, view_id)
        event = ViewRemoved(view_id=view.id, by=_name(request), source="console")
        await stored(request, event, view.version)

    return views, new_view, change_view, remove_view


def visible_views(principal: Principal, views: Iterable[SavedView]) -> list[SavedView]:
    """A caller's own views, and those that others share as the caller may see them."""
    return [
        one
        if one.owner == principal.name
        else msgspec.structs.replace(one, path=shown_path(principal, one.path))
        for one in views
        if one.is_shared or one.owner == principal.name
    ]


def _name(request: ApiRequest) -> str:
    principal: Principal = request.scope["state"]["principal"]
    return principal.name
