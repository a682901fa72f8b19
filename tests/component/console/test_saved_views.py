"""Saved views: one's own, shared ones, and what a view cannot lead to."""

from __future__ import annotations

from typing import Any

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_api_acting import Person, send

from penstock.console.api import views
from penstock.console.web.scopes import Scope

DEAD = {"title": "dead of reports", "path": "/jobs?q=state:dead+queue:reports"}


async def titles(caller: Any) -> list[str]:
    items = (await caller.get("/api/v1/views")).json()["items"]
    return [item["title"] for item in items]


async def test_a_view_is_saved_changed_shared_and_removed(site: Site) -> None:
    """Reading is enough to save one."""
    ada: Any = site.caller(Person(Scope.READ))
    bob: Any = site.caller(Person(Scope.READ, name="bob"))
    view = await send(ada, "POST", "/views", DEAD, status=201)
    assert (view["owner"], await titles(ada), await titles(bob)) == ("ada", [DEAD["title"]], [])
    path = f"/views/{view['id']}"
    await send(bob, "PUT", path, DEAD, status=404)
    shared = {**DEAD, "title": "ours", "is_shared": True}
    changed = await send(ada, "PUT", path, shared, status=200)
    assert changed["version"] > view["version"]
    assert (await titles(ada), await titles(bob)) == (["ours"], ["ours"])
    await send(bob, "PUT", path, DEAD, status=403)
    await send(bob, "DELETE", path, status=403)
    await send(ada, "DELETE", path, status=204)
    assert (await titles(ada), await titles(bob)) == ([], [])
    await send(ada, "DELETE", path, status=404)


@pytest.mark.parametrize(
    "path", ["", "jobs", "//evil.example", "/\\evil", "https://evil.example", "/jobs\r\nX: y"]
)
async def test_a_view_leads_to_a_page_of_this_console_alone(site: Site, path: str) -> None:
    ada: Any = site.caller(Person())
    await send(ada, "POST", "/views", {**DEAD, "path": path}, status=400)


async def test_a_person_has_so_many_views_at_most(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MOST_VIEWS", 1)
    ada: Any = site.caller(Person())
    await send(ada, "POST", "/views", DEAD, status=201)
    await send(ada, "POST", "/views", DEAD, status=409)
    await send(site.caller(Person(name="bob")), "POST", "/views", DEAD, status=201)
