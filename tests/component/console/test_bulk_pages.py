"""All that match a filter, from pages: counted, confirmed, started once, followed, ended."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, die, dispatch
from tests.waiting import eventually

from penstock.events.console import Role
from penstock.jobs.lifecycle import State


async def browser(site: Site, role: Role = "operator") -> httpx.AsyncClient:
    guarded = Guarded(site)
    await guarded.account("ada", role)
    return await guarded.logged_in("ada")


async def dead_jobs(site: Site, count: int) -> list[str]:
    client = site.caller(Person())
    ids = [await dispatch(client) for _ in range(count)]
    for job_id in ids:
        await die(site, job_id)
    return ids


def fields(text: str) -> dict[str, Any]:
    """The fields of the last form of a page."""
    form = text[text.rindex('<form class="fields') :]
    found: dict[str, Any] = {}
    for tag in re.findall(r"<input[^>]*>", form):
        name, value = (re.search(rf'{one}="([^"]*)"', tag) for one in ("name", "value"))
        if name and value:
            found.setdefault(name[1], []).append(html.unescape(value[1]))
    return found


def verbs(text: str) -> list[str]:
    """Those that a page offers, for its filter and then for chosen jobs."""
    return re.findall(r'name="verb" value="([^"]*)"', text)


async def test_all_dead_jobs_of_a_failure_are_run_again(running: Site) -> None:
    ids = await dead_jobs(running, 12)
    client = await browser(running)
    groups = (await client.get("/failures")).text
    path = re.findall(r'href="(/failures/[0-9a-f]+)"', groups)[0]
    group = (await client.get(path)).text
    assert "12 dead jobs of this failure" in group
    [words] = re.findall(r'name="filter" value="([^"]*)"', group)
    preview = await client.post("/bulk/preview", data={"verb": "retry", "filter": words})
    assert preview.status_code == 200
    assert "Run again: 12 jobs" in preview.text
    form = {**fields(preview.text), "title": "after the fix", "reason": "table is back"}
    answers = [await client.post("/bulk/start", data=form) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [303, 303], answers[0].text
    [place] = {answer.headers["location"] for answer in answers}

    async def is_done() -> bool:
        return "state done" in (await client.get(place)).text

    await eventually(is_done, 10, "the end of the action")
    page = (await client.get(place)).text
    assert "after the fix" in page
    assert "12 of 12" in page
    assert "after the fix" in (await client.get("/bulk")).text
    states = {(await running.console.client.job(job_id)).state for job_id in ids}
    assert states == {State.WAITING}
    *_, ended, begun = await Guarded(running).entries("bulk.start")
    assert (begun.actor, ended.result) == ("ada", "done")


async def test_chosen_jobs_alone_are_acted_on(running: Site) -> None:
    ids = await dead_jobs(running, 3)
    client = await browser(running)
    preview = await client.post("/bulk/preview", data={"verb": "retry", "ids": ids[:2]})
    assert "Run again: 2 jobs" in preview.text
    assert fields(preview.text)["ids"] == ids[:2]


async def test_a_list_offers_what_can_be_done_to_its_jobs(site: Site) -> None:
    await dead_jobs(site, 1)
    client = await browser(site)
    dead = (await client.get("/jobs?q=state:dead")).text
    assert verbs(dead) == ["retry", "delete", "tag", "untag"] * 2
    await dispatch(site.caller(Person()))
    waiting = (await client.get("/jobs?q=state:waiting")).text
    assert (
        re.findall(r'name="verb" value="([^"]*)"', waiting)
        == ["cancel", "move", "tag", "untag"] * 2
    )
    everything = (await client.get("/jobs")).text
    assert 'name="filter"' not in everything, "no filter would mean all jobs"
    assert 'name="ids"' in everything


async def test_what_is_refused_is_explained(site: Site) -> None:
    await dead_jobs(site, 1)
    client = await browser(site)
    bad = await client.post("/bulk/preview", data={"verb": "cancel", "filter": "state:dead"})
    assert bad.status_code == 400
    assert "cancel is for" in bad.text
    assert (await client.post("/bulk/preview", data={"verb": "explode"})).status_code == 400
    preview = await client.post("/bulk/preview", data={"verb": "retry", "filter": "state:dead"})
    forged = {**fields(preview.text), "count": "7"}
    answer = await client.post("/bulk/start", data=forged)
    assert answer.status_code == 409
    assert "Not started." in answer.text
    fast = {**fields(preview.text), "per_second": "many"}
    assert "expected a whole number" in (await client.post("/bulk/start", data=fast)).text


async def test_a_viewer_sees_why_and_starts_nothing(site: Site) -> None:
    await dead_jobs(site, 1)
    client = await browser(site, "viewer")
    page = (await client.get("/jobs?q=state:dead")).text
    assert "The role viewer may not: this needs the scope jobs." in page
    assert 'name="verb"' not in page
    answer = await client.post("/bulk/preview", data={"verb": "retry", "filter": "state:dead"})
    assert answer.status_code == 403
    headers = {"Sec-Fetch-Site": "cross-site"}
    foreign = await client.post("/bulk/preview", data={"verb": "retry"}, headers=headers)
    assert foreign.status_code == 403
