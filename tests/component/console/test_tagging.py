"""Tags of jobs in the API and on pages: one job, and all of a filter."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, die, dispatch, send
from tests.component.console.test_bulk_pages import fields
from tests.component.console.test_console_bulk import ended, started
from tests.component.console.test_page_acts import browser, confirm
from tests.waiting import eventually

from penstock.console.web.scopes import Scope
from penstock.events.job import JobCompleted, JobStarted
from penstock.jobs.lifecycle import State


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


async def tags(site: Site, job_id: str) -> tuple[str, ...]:
    return (await site.console.client.job(job_id)).record.tags


async def listed(ada: httpx.AsyncClient, query: str) -> list[str]:
    answer = await ada.get("/api/v1/jobs", params={"q": query})
    return [one["id"] for one in answer.json()["items"]]


async def test_a_job_is_tagged_found_by_it_counted_and_untagged(site: Site, ada: Any) -> None:
    job_id, other = await dispatch(ada, tags=["nightly"]), await dispatch(ada)
    for _ in range(2):
        receipt = await send(ada, "PUT", f"/jobs/{job_id}/tags/looked%20at%2Ftwice")
    [event] = (await ada.get(f"{receipt['events']}&limit=1")).json()["items"]
    assert (event["name"], event["event"]["source"]) == ("JobTagged", "console/ada")
    assert event["text"] == "+looked at/twice"
    assert await listed(ada, 'tag:"looked at/twice"') == [job_id]
    items = (await ada.get("/api/v1/tags")).json()["items"]
    assert {one["tag"]: one["jobs"] for one in items} == {"nightly": 1, "looked at/twice": 1}
    await send(ada, "DELETE", f"/jobs/{job_id}/tags/nightly")
    assert await tags(site, job_id) == ("looked at/twice",)
    assert await listed(ada, "tag:nightly") == []
    assert await tags(site, other) == ()


async def test_an_ended_job_is_tagged_and_its_row_stays_as_it_was(site: Site, ada: Any) -> None:
    job_id = await dispatch(ada)
    about: dict[str, Any] = {"job_id": job_id, "queue": "reports", "attempt": 1}
    await site.store(
        JobStarted(**about, host="h", worker="w"), JobCompleted(**about, run_seconds=2.0)
    )
    before = (await ada.get("/api/v1/jobs")).json()["items"][0]
    await send(ada, "PUT", f"/jobs/{job_id}/tags/seen")
    after = (await ada.get("/api/v1/jobs?q=tag:seen")).json()["items"][0]
    assert after == {**before, "tags": ["seen"]}
    assert (await site.console.client.job(job_id)).state is State.COMPLETED


@pytest.mark.parametrize(
    ("tag", "said"), [("x" * 101, "1 to 100"), ("schedule:daily", "names the schedule")]
)
async def test_what_cannot_be_a_tag_is_refused_in_words(
    site: Site, ada: Any, tag: str, said: str
) -> None:
    job_id = await dispatch(ada)
    answer = await ada.put(f"/api/v1/jobs/{job_id}/tags/{tag}")
    assert answer.status_code == 409
    assert said in answer.json()["detail"]


async def test_a_viewer_tags_nothing(site: Site, ada: Any) -> None:
    job_id = await dispatch(ada)
    viewer = await browser(site, "viewer")
    refused = await viewer.post(f"/acts/job.tag/{job_id}", data={"tag": "x"})
    assert refused.status_code == 403
    assert await tags(site, job_id) == ()


async def test_a_job_is_tagged_from_its_page(site: Site, ada: Any) -> None:
    job_id = await dispatch(ada)
    client = await browser(site)
    answer = await confirm(client, f"/acts/job.tag/{job_id}", tag="a <b>/c")
    assert answer.headers["location"] == f"/jobs/{job_id}?acted=job.tag"
    page = (await client.get(answer.headers["location"])).text
    assert "The job has the tag." in page
    assert '">a &lt;b&gt;/c</a>' in page
    assert '">a &lt;b&gt;/c</a>' in (await client.get("/jobs")).text
    linked = (await client.get(f"/acts/job.untag/{job_id}?tag=a+%3Cb%3E/c")).text
    assert 'value="a &lt;b&gt;/c"' in linked, "a link fills the form in"
    assert await tags(site, job_id) == ("a <b>/c",), "and does nothing by itself"
    answer = await confirm(client, f"/acts/job.untag/{job_id}", tag="a <b>/c")
    assert answer.status_code == 303, answer.text
    assert await tags(site, job_id) == ()


async def test_all_jobs_of_a_filter_are_tagged_from_the_page(running: Site, ada: Any) -> None:
    dead = [await dispatch(ada) for _ in range(3)]
    for job_id in dead:
        await die(running, job_id)
    other = await dispatch(ada)
    client = await browser(running)
    preview = await client.post("/bulk/preview", data={"verb": "tag", "filter": "state:dead"})
    assert "Tag: 3 jobs" in preview.text
    form = fields(preview.text)
    nothing = await client.post("/bulk/start", data=form)
    assert "tags is missing" in nothing.text
    answer = await client.post("/bulk/start", data={**fields(nothing.text), "tag": "ticket 7"})
    assert answer.status_code == 303, answer.text

    async def is_done() -> bool:
        return "state done" in (await client.get(answer.headers["location"])).text

    await eventually(is_done, 10, "the end of the action")
    assert [await tags(running, job_id) for job_id in dead] == [("ticket 7",)] * 3
    assert await tags(running, other) == ()
    assert sorted(await listed(ada, 'tag:"ticket 7"')) == sorted(dead)


async def test_tags_are_taken_from_jobs_in_any_state(running: Site, ada: Any) -> None:
    ids = [await dispatch(ada, tags=["old", "kept"]) for _ in range(2)]
    await die(running, ids[0])
    action = await started(ada, {"verb": "untag", "filter": "tag:old"}, tags=["old"])
    end = await ended(ada, action)
    assert (end["done"], end["refused"], end["tags"]) == (2, 0, ["old"])
    assert [await tags(running, job_id) for job_id in ids] == [("kept",)] * 2


@pytest.mark.parametrize(
    ("verb", "more", "said"),
    [
        ("tag", {}, "tags is missing"),
        ("cancel", {"tags": ["a"]}, "tags is not for cancel"),
        ("tag", {"tags": ["schedule:x"]}, "names the schedule"),
        ("move", {}, "to_queue is missing"),
        ("move", {"to_queue": "no such.queue"}, "queue name"),
        ("move", {"to_queue": "unserved"}, "no pool takes it"),
    ],
)
async def test_what_an_action_needs_is_checked_before_it_starts(
    site: Site, ada: Any, verb: str, more: dict[str, Any], said: str
) -> None:
    await dispatch(ada)
    what = {"verb": verb, "filter": "queue:reports"}
    preview = await send(ada, "POST", "/bulk/preview", what, status=200)
    body = {**what, "confirm": preview["confirm"], "count": preview["count"], **more}
    answer = await ada.post("/api/v1/bulk", json=body)
    assert 400 <= answer.status_code < 500
    assert said in answer.text


async def test_waiting_jobs_are_moved_to_another_queue(running: Site, ada: Any) -> None:
    ids = [await dispatch(ada) for _ in range(3)]
    about: dict[str, Any] = {"job_id": ids[2], "queue": "reports", "attempt": 1}
    await running.store(JobStarted(**about, host="h", worker="w"))
    what = {"verb": "move", "filter": "queue:reports"}
    end = await ended(ada, await started(ada, what, to_queue="imports", reason="full"))
    assert (end["done"], end["total"], end["to_queue"]) == (2, 2, "imports")
    queues = [(await running.console.client.job(one)).record.queue for one in ids]
    assert queues == ["imports", "imports", "reports"]
    waiting = await running.bus.history(
        running.subjects.jobs_stream, running.subjects.queue("imports")
    )
    assert len(waiting) == 2, "each has a message on its new queue"


async def test_a_token_of_one_queue_moves_nothing_to_another(running: Site, ada: Any) -> None:
    await dispatch(ada)
    limited = await Guarded(running).bearer(Scope.READ, Scope.JOBS, queues=("reports",))
    what = {"verb": "move", "filter": "queue:reports"}
    preview = (await limited.post("/api/v1/bulk/preview", json=what)).json()
    body = {**what, "confirm": preview["confirm"], "count": 1, "to_queue": "imports"}
    answer = await limited.post("/api/v1/bulk", json=body)
    assert answer.status_code == 403, answer.text


async def test_a_running_job_that_is_not_stuck_goes_on(running: Site, ada: Any) -> None:
    job_id = await dispatch(ada)
    about: dict[str, Any] = {"job_id": job_id, "queue": "reports", "attempt": 1}
    await running.store(JobStarted(**about, host="h", worker="w"))
    end = await ended(ada, await started(ada, {"verb": "recover", "filter": "state:running"}))
    assert (end["done"], end["reasons"]) == (0, {"it is not stuck": 1})
    assert (await running.console.client.job(job_id)).state is State.RUNNING
