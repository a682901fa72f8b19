"""Acts from pages: confirmed, done by the API's own rules, once, and explained where refused."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import httpx
import pytest
from litestar.routes import HTTPRoute
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, die, dispatch

from penstock.bus.access import NotPermitted
from penstock.bus.protocol import Outgoing
from penstock.console.api.router import PATH
from penstock.console.app import application
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.page_acts import ACTS
from penstock.console.web.acting import action_of
from penstock.console.web.credentials import Local
from penstock.console.web.scopes import scope_of
from penstock.events.console import Role
from penstock.events.snapshot import HostSnapshot
from penstock.jobs.lifecycle import State
from penstock.operations.orders import read_orders

Form = dict[str, str]


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


async def browser(site: Site, role: Role = "operator") -> httpx.AsyncClient:
    guarded = Guarded(site)
    await guarded.account("ada", role)
    return await guarded.logged_in("ada")


async def opened(client: httpx.AsyncClient, path: str) -> Form:
    """The fields with which the form of a confirmation begins."""
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return dict(re.findall(r'name="(\w+)" value="([^"]*)"', answer.text))


async def confirm(client: httpx.AsyncClient, path: str, **entered: str) -> httpx.Response:
    return await client.post(path, data={**await opened(client, path), **entered})


async def test_a_dead_job_is_run_again_by_the_person_who_confirmed_it(
    site: Site, ada: httpx.AsyncClient
) -> None:
    job_id = await dispatch(ada)
    await die(site, job_id)
    client = await browser(site)
    page = (await client.get(f"/jobs/{job_id}")).text
    assert f'href="/acts/job.retry/{job_id}"' in page
    assert f'href="/acts/job.cancel/{job_id}"' not in page
    confirmation = (await client.get(f"/acts/job.retry/{job_id}")).text
    assert "queued again with all its tries" in confirmation
    assert "Done by <strong>ada</strong>" in confirmation
    answer = await confirm(client, f"/acts/job.retry/{job_id}", reason="the table is back")
    assert answer.headers["location"] == f"/jobs/{job_id}?acted=job.retry"
    view = await site.console.client.job(job_id)
    assert (view.state, view.record.life) == (State.WAITING, 2)
    assert "The job is queued again." in (await client.get(answer.headers["location"])).text
    [ended, begun] = await Guarded(site).entries("job.retry")
    assert (begun.actor, ended.result, ended.target) == ("ada", "done", f"job:{job_id}")
    assert await Guarded(site).entries("page.act") == []


async def test_a_form_that_is_sent_twice_has_one_effect(site: Site, ada: httpx.AsyncClient) -> None:
    job_id = await dispatch(ada)
    await die(site, job_id)
    client = await browser(site)
    path = f"/acts/job.retry/{job_id}"
    form = {**await opened(client, path), "reason": "x"}
    answers = [await client.post(path, data=form) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [303, 303, 303]
    assert (await site.console.client.job(job_id)).record.life == 2


async def test_a_refused_act_is_explained_and_can_be_tried_again(
    site: Site, ada: httpx.AsyncClient
) -> None:
    job_id = await dispatch(ada)
    client = await browser(site)
    answer = await confirm(client, f"/acts/job.retry/{job_id}", reason="too early")
    assert answer.status_code == 409
    assert "<strong>Not done.</strong>" in answer.text
    assert 'value="too early"' in answer.text
    await die(site, job_id)
    form = dict(re.findall(r'name="(\w+)" value="([^"]*)"', answer.text))
    assert (await client.post(f"/acts/job.retry/{job_id}", data=form)).status_code == 303


async def test_a_pool_is_held_within_bounds_and_released(site: Site) -> None:
    client = await browser(site)
    answer = await confirm(
        client, "/acts/pool.hold/reports", at_least="3", until="2", reason="month end"
    )
    assert answer.status_code == 303, answer.text
    held = (await read_orders(site.bus, site.subjects)).holds["reports"]
    assert (held.at_least, held.at_most, held.reason) == (3, None, "month end")
    answer = await confirm(client, "/acts/pool.release/reports")
    assert answer.status_code == 303, answer.text
    assert "reports" not in (await read_orders(site.bus, site.subjects)).holds


async def test_a_host_is_drained_and_resumed_from_its_page(site: Site) -> None:
    snapshot = HostSnapshot(host="h1", cpu_cores=4, memory_bytes=1)
    site.console.present.board.take(snapshot)
    client = await browser(site)
    assert "/acts/host.drain/h1" in (await client.get("/capacity/h1")).text
    answer = await confirm(client, "/acts/host.drain/h1", reason="new disk")
    assert answer.headers["location"] == "/capacity/h1?acted=host.drain"
    order = (await read_orders(site.bus, site.subjects)).hosts["h1"]
    assert (order.state, order.reason, order.by) == ("drained", "new disk", "console/ada")
    answer = await confirm(client, "/acts/host.resume/h1")
    assert answer.status_code == 303, answer.text
    assert "h1" not in (await read_orders(site.bus, site.subjects)).hosts
    answer = await confirm(client, "/acts/host.drain/h2", reason="misspelt")
    assert answer.status_code == 404


@pytest.mark.parametrize(
    ("entered", "said"),
    [
        ({"at_least": "3", "reason": ""}, "Reason: this is needed"),
        ({"at_least": "three", "reason": "x"}, "expected a whole number"),
        ({"at_least": "3", "until": "9000", "reason": "x"}, "expected hours, up to 720"),
        ({"at_least": "9", "at_most": "3", "reason": "x"}, "at_least exceeds at_most"),
        ({"reason": "x"}, "expected at_least or at_most"),
    ],
)
async def test_a_field_that_cannot_be_read_is_named(site: Site, entered: Form, said: str) -> None:
    client = await browser(site)
    answer = await confirm(client, "/acts/pool.hold/reports", **entered)
    assert answer.status_code == 400
    assert said in answer.text


async def test_a_queue_is_paused_and_resumed_from_its_list(
    site: Site, ada: httpx.AsyncClient
) -> None:
    await dispatch(ada)
    client = await browser(site)
    assert "/acts/queue.pause/reports" in (await client.get("/queues")).text
    answer = await confirm(client, "/acts/queue.pause/reports", reason="repair")
    assert answer.headers["location"] == "/queues?acted=queue.pause"
    page = (await client.get("/queues?acted=queue.pause")).text
    assert "The queue is paused." in page
    assert ": repair" in page
    assert "/acts/queue.resume/reports" in page


async def test_who_may_not_act_is_told_why_and_refused(site: Site, ada: httpx.AsyncClient) -> None:
    job_id = await dispatch(ada)
    viewer = await browser(site, "viewer")
    for path in (f"/jobs/{job_id}", f"/acts/job.cancel/{job_id}"):
        page = (await viewer.get(path)).text
        assert "The role viewer may not: this needs the scope jobs." in page
        assert "data-act" not in page
        assert '<form class="fields' not in page
    answer = await viewer.post(f"/acts/job.cancel/{job_id}", data={"reason": "x"})
    assert answer.status_code == 403
    assert "Not done." in answer.text
    assert (await site.console.client.job(job_id)).state is State.WAITING
    local = (await site.client.get(f"/jobs/{job_id}")).text
    assert "Log in to act: without that, this machine may only read." in local


async def test_another_site_cannot_send_the_form(site: Site, ada: httpx.AsyncClient) -> None:
    job_id = await dispatch(ada)
    client = await browser(site)
    path = f"/acts/job.cancel/{job_id}"
    form = await opened(client, path)
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}):
        assert (await client.post(path, data=form, headers=headers)).status_code == 403
    assert (await site.console.client.job(job_id)).state is State.WAITING


async def test_what_the_address_says_is_shown_as_text_or_not_at_all(site: Site) -> None:
    client = await browser(site)
    attack = "%3Cscript%3Ealert(1)"
    page = (await client.get(f"/acts/queue.pause/{attack}")).text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "alert(1)" not in (await client.get(f"/queues?acted={attack}")).text
    assert (await client.get("/acts/job.explode/x")).status_code == 404


def test_every_act_of_pages_is_an_endpoint_with_the_same_name_and_scope(site: Site) -> None:
    def shape(path: str) -> str:
        return re.sub(r"\{[^}]*\}", "{}", path)

    endpoints: dict[tuple[str, str], Any] = {
        (str(method), shape(route.path_format)): handler
        for route in application(site.console, Local()).routes
        if isinstance(route, HTTPRoute)
        for handler in route.route_handlers
        for method in handler.http_methods
    }
    for act in ACTS.values():
        handler = endpoints[act.method, shape(f"{PATH}{act.path}")]
        assert (action_of(handler.opt), scope_of(handler.opt)) == (act.name, act.scope)


def test_problem_details_become_one_sentence() -> None:
    body = b'{"status":400,"title":"No","detail":"a b","errors":[{"detail":"c","pointer":"/x"}]}'
    assert through_api.sentence(body) == "No: a b; /x: c."
    assert through_api.sentence(b"<html>") == "The console failed; its log says why."


async def test_a_console_that_only_shows_says_so_in_place_of_buttons(
    site: Site, ada: httpx.AsyncClient
) -> None:
    job_id = await dispatch(ada)
    control = dataclasses.replace(site.console.control, read_only=True)
    site.console = dataclasses.replace(site.console, control=control)
    reader = site.caller(Person())
    for path in (f"/jobs/{job_id}", f"/acts/job.cancel/{job_id}", "/jobs?q=state:waiting"):
        page = (await reader.get(path)).text
        assert "This console only shows: console.read_only is set." in page, path
        assert "data-act" not in page
    await reader.post(f"/acts/job.cancel/{job_id}", data={"reason": "x"})
    assert (await site.console.client.job(job_id)).state is State.WAITING


async def test_with_a_readers_key_the_page_explains_that_the_broker_refuses(
    site: Site, ada: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await dispatch(ada)
    client = await browser(site)
    append = site.bus.append

    async def of_reader(message: Outgoing) -> int:
        if ".console.audit." not in message.subject:
            raise NotPermitted(f"this key may not publish to {message.subject}")
        return await append(message)

    monkeypatch.setattr(site.bus, "append", of_reader)
    answer = await confirm(client, f"/acts/job.cancel/{job_id}", reason="x")
    assert answer.status_code == 403
    assert "Not done." in answer.text
    assert "its key of the broker is one of console-reader" in answer.text
    assert (await site.console.client.job(job_id)).state is State.WAITING
