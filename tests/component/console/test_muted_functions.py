"""Muted functions: counted and not listed, by whom and why, on each console, until undone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, die, dispatch, send
from tests.component.console.test_page_acts import browser, confirm
from tests.waiting import eventually

from penstock.bus.protocol import WrongSequence
from penstock.console.alerts.book import Book
from penstock.operations.muted_functions import MOST_MUTED, MutedFunctions, MuteRefused
from penstock.runtime.service import Service


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


@pytest.fixture
async def following(site: Site) -> AsyncIterator[Site]:
    """With the part that follows what people decided."""
    site.spawn(site.console.alerts.book.run)
    yield site


async def failures(ada: httpx.AsyncClient, **params: Any) -> list[str]:
    answer = await ada.get("/api/v1/failures", params=params)
    return [name for one in answer.json()["items"] for name in one["functions"]]


async def test_a_muted_function_is_counted_and_not_listed(following: Site, ada: Any) -> None:
    job_id = await dispatch(ada)
    await die(following, job_id)
    overview = (await ada.get("/api/v1/overview")).json()["overview"]
    assert "dead" in {one["kind"] for one in overview["attention"]}
    before = await ada.get("/api/v1/failures")
    for _ in range(2):
        await send(ada, "PUT", "/muted/shop.load", {"reason": "known, #4711"}, status=204)
    [muted] = (await ada.get("/api/v1/muted")).json()["items"]
    assert (muted["function"], muted["reason"], muted["by"]) == ("shop.load", "known, #4711", "ada")
    overview = (await ada.get("/api/v1/overview")).json()["overview"]
    assert "dead" not in {one["kind"] for one in overview["attention"]}
    assert overview["totals"]["dead"] == 1
    assert (await failures(ada), await failures(ada, silenced=True)) == ([], ["shop.load"])
    seen = {"If-None-Match": before.headers["etag"]}
    assert (await ada.get("/api/v1/failures", headers=seen)).status_code == 200, "it has changed"
    listed = (await ada.get("/api/v1/jobs", params={"q": "silenced:yes"})).json()["items"]
    assert [one["id"] for one in listed] == [job_id]
    assert len((await ada.get("/api/v1/jobs?q=state:dead")).json()["items"]) == 1
    for _ in range(2):
        await send(ada, "DELETE", "/muted/shop.load", status=204)
    assert (await failures(ada), await failures(ada, silenced=True)) == (["shop.load"], [])
    assert (await ada.get("/api/v1/jobs?q=silenced:yes")).json()["items"] == []


async def test_jobs_of_muted_functions_are_listed_over_pages_and_by_further_filters(
    following: Site, ada: Any
) -> None:
    ids = [await dispatch(ada, function=f"shop.f{n % 3}") for n in range(9)]
    for n in range(2):
        await send(ada, "PUT", f"/muted/shop.f{n}", {}, status=204)
    wanted = [one for n, one in enumerate(ids) if n % 3 < 2][::-1]
    found, cursor = [], ""
    while True:
        params = {"q": "silenced:yes", "limit": 2, "cursor": cursor}
        page = (await ada.get("/api/v1/jobs", params=params)).json()
        found += [one["id"] for one in page["items"]]
        if not (cursor := page["next"]):
            break
    assert found == wanted
    for query in ("silenced:yes state:waiting", "silenced:yes queue:reports f"):
        items = (await ada.get("/api/v1/jobs", params={"q": query})).json()["items"]
        assert [one["id"] for one in items] == wanted, query
    what = {"verb": "cancel", "filter": "silenced:yes"}
    assert "for lists" in (await ada.post("/api/v1/bulk/preview", json=what)).text


async def test_other_consoles_follow_and_one_that_starts_later_knows(
    following: Site, ada: Any
) -> None:
    await send(ada, "PUT", "/muted/shop.load", {"reason": "r"}, status=204)
    other = Book(following.bus, following.subjects, lambda _: None)
    service = Service("console", following.settings, following.bus)
    service.spawn(other.run(service), "book")
    await eventually(lambda: list(other.muted) == ["shop.load"], 10, "the mute")
    await send(ada, "DELETE", "/muted/shop.load", status=204)
    await eventually(lambda: not other.muted, 10, "its end")
    service.stopping.set()
    await service.end_tasks()


@pytest.mark.parametrize("name", ["a b", "x" * 201])
async def test_what_can_be_no_function_is_refused(site: Site, ada: Any, name: str) -> None:
    answer = await ada.put(f"/api/v1/muted/{name}", json={})
    assert answer.status_code == 400
    assert "expected a registered name" in answer.json()["detail"]


async def test_their_number_is_bounded_and_changes_at_the_same_time_are_noticed(
    site: Site,
) -> None:
    functions = MutedFunctions(site.bus, site.subjects, "test")
    for number in range(MOST_MUTED):
        await functions.mute(f"f{number}", "ada")
    with pytest.raises(MuteRefused, match="at most 200"):
        await functions.mute("one_more", "ada")
    await functions.unmute("f0", "ada")
    await functions.mute("one_more", "ada")
    stale, _ = await functions._read(), await functions.mute("f1", "bob", "again")
    functions._read = lambda: _answer(stale)  # type: ignore[method-assign]
    with pytest.raises(WrongSequence):
        await functions.unmute("f1", "ada")


async def _answer(value: Any) -> Any:
    return value


async def test_a_function_is_muted_from_its_failure_and_unmuted_from_silenced(
    following: Site, ada: Any
) -> None:
    await die(following, await dispatch(ada))
    client = await browser(following)
    [group] = (await ada.get("/api/v1/failures")).json()["items"]
    path = f"/failures/{group['fingerprint']}"
    assert "/acts/function.mute/shop.load" in (await client.get(path)).text
    refused = await confirm(client, "/acts/function.mute/shop.load")
    assert "Reason: this is needed" in refused.text
    answer = await confirm(client, "/acts/function.mute/shop.load", reason="known <b>")
    assert answer.headers["location"] == "/silenced?acted=function.mute"
    page = (await client.get(answer.headers["location"])).text
    assert "The function is muted." in page
    assert "known &lt;b&gt;" in page
    assert path in page
    assert path not in (await client.get("/failures")).text
    assert "is muted since" in (await client.get(path)).text
    assert "silenced" in (await client.get("/jobs")).text
    answer = await confirm(client, "/acts/function.unmute/shop.load")
    assert answer.status_code == 303, answer.text
    assert path in (await client.get("/failures")).text
    [ended, begun] = await Guarded(following).entries("function.mute")
    assert (begun.actor, ended.target) == ("ada", "function:shop.load")
