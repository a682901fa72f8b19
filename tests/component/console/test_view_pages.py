"""The list of jobs with chosen columns, under a name, and with counts of what its filter finds."""

from __future__ import annotations

import html
import re
from urllib.parse import urlsplit

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_console_api import died, dispatched
from tests.component.console.test_page_acts import browser

from penstock.bus.protocol import BusUnavailable
from penstock.console.pages import job_columns

SHOWN = "/jobs?q=state:dead+queue:reports&columns=state,worker"


async def page(client: httpx.AsyncClient, path: str, status: int = 200) -> str:
    answer = await client.get(path)
    assert answer.status_code == status, answer.text
    return html.unescape(answer.text)


def heads(text: str) -> list[str]:
    return re.findall(r'<th scope="col"[^>]*>([A-Z][^<]*)</th>', text)


async def test_the_columns_of_a_list_are_those_of_its_address(site: Site) -> None:
    await site.store(*(dispatched(number) for number in range(1, 102)), *died(101, "no disk"))
    assert len(heads(await page(site.client, "/jobs"))) == 1 + len(job_columns.USUAL)
    for chosen in ("columns=worker,state", "columns=state&columns=worker"):
        text = await page(site.client, f"/jobs?q=queue:reports&{chosen}")
        assert heads(text) == ["Job", "State", "Worker"]
        assert 'data-label="Host"' not in text
        for kind in ("data-earlier", 'hx-trigger="refresh"', 'aria-current="true"'):
            [link] = re.findall(rf'"(/jobs\?[^"]*)"[^<>]*{kind}', text)
            assert "columns=state,worker" in link, kind
    text = await page(site.client, "/jobs?columns=colour")
    assert "found the column 'colour', expected some of function, queue" in text
    assert len(heads(text)) == 1 + len(job_columns.USUAL)


def test_an_address_names_columns_only_where_they_are_not_the_usual_ones() -> None:
    assert job_columns.address("", job_columns.USUAL) == "/jobs"
    chosen = job_columns.read(["worker,state"])
    path = job_columns.address('err:"timed out"', chosen, "abc")
    assert path == "/jobs?q=err:%22timed+out%22&columns=state,worker&cursor=abc"
    assert job_columns.read([""]) == job_columns.USUAL


async def test_states_are_counted_by_function_and_batch(site: Site) -> None:
    await site.store(
        dispatched(1, job_id="nightly_0123abcd_1"),
        dispatched(2),
        *died(2, "no disk"),
        dispatched(3, job_id="nightly_0123abcd_2"),
    )
    for words, dead in (("function:shop.rebuild", 1), ("batch:nightly", 0)):
        text = await page(site.client, f"/jobs?q={words}")
        assert 'waiting <span class="number">2</span>' in text, words
        assert f'dead <span class="number">{dead}</span>' in text, words


async def test_a_list_is_saved_found_renamed_shared_and_removed(site: Site) -> None:
    ada = await browser(site)
    text = await page(ada, SHOWN)
    [path] = re.findall(r'name="path" value="([^"]*)"', text)
    assert path == SHOWN
    answer = await ada.post("/views", data={"title": "Dead ones", "path": path})
    assert answer.status_code == 303, answer.text
    came_to = urlsplit(answer.headers["location"])
    assert f"{came_to.path}?{came_to.query}".startswith(SHOWN)
    assert "The view is saved." in await page(ada, answer.headers["location"])
    assert f'<a href="{SHOWN}">Dead ones</a>' in await page(ada, "/views/menu")

    text = await page(ada, "/views")
    [view_id] = re.findall(r'action="/views/([^"/]*)"', text)
    renamed = {"title": "Dead of reports", "path": SHOWN, "is_shared": "1"}
    answer = await ada.post(f"/views/{view_id}", data=renamed)
    assert answer.headers["location"] == "/views?acted=view.change"
    assert "Dead of reports" in await page(ada, "/views")
    guarded = Guarded(site)
    await guarded.account("bob", "viewer")
    bob = await guarded.logged_in("bob")
    others = await page(bob, "/views")
    assert "Dead of reports" in others
    assert f'action="/views/{view_id}"' not in others
    refused = await bob.post(f"/views/{view_id}/remove")
    assert refused.status_code == 403
    assert "Not removed." in refused.text
    await ada.post(f"/views/{view_id}/remove")
    assert "No view is saved yet" in await page(ada, "/views")


@pytest.mark.parametrize("path", ["//evil.example", "https://evil.example", ""])
async def test_a_view_never_leads_elsewhere(site: Site, path: str) -> None:
    ada = await browser(site)
    answer = await ada.post("/views", data={"title": "x", "path": path})
    assert answer.status_code == 400
    assert "Not saved." in answer.text


async def test_views_that_cannot_be_read_are_reported(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise BusUnavailable("no broker")

    monkeypatch.setattr(site.bus, "history", away)
    assert "The saved views cannot be read: no broker." in await page(site.client, "/views")
    assert "No view is saved yet" in await page(site.client, "/views/menu")
