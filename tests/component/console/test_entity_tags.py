"""What has not changed is not sent again; what changed meanwhile is not replaced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_api_acting import Person

from penstock.bus.protocol import broker_time
from penstock.console.api.router import router
from penstock.jobs.schedules.client import put

PATH = "/api/v1/schedules/nightly"
NIGHTLY: dict[str, Any] = {"cron": "0 3 * * *", "function": "shop.load", "queue": "reports"}
EARLIER = NIGHTLY | {"cron": "0 2 * * *"}


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


async def stored(ada: httpx.AsyncClient) -> str:
    """A schedule; returns its tag."""
    made = await ada.put(PATH, json=NIGHTLY)
    assert made.status_code == 202, made.text
    read = await ada.get(PATH)
    assert read.headers["etag"].partition(".")[0] == made.headers["etag"].partition(".")[0]
    return read.headers["etag"]


async def change(ada: httpx.AsyncClient, method: str, headers: Mapping[str, str]) -> int:
    body = EARLIER if method == "PUT" else None
    return (await ada.request(method, PATH, json=body, headers=dict(headers))).status_code


async def tick(site: Site) -> None:
    """The orchestrator dispatches one."""
    schedule = await site.console.client.schedules.get("nightly")
    ticked = msgspec.structs.replace(
        schedule, dispatched=schedule.dispatched + 1, last_tick=broker_time(site.bus)
    )
    message = await site.bus.last(
        site.subjects.state_stream, site.subjects.state("schedule", "nightly")
    )
    assert message is not None
    assert await put(site.bus, site.subjects, ticked, message.sequence)


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_schedule_that_was_changed_since_is_not_touched(
    ada: httpx.AsyncClient, method: str
) -> None:
    tag = await stored(ada)
    assert (await ada.put(PATH, json=EARLIER)).status_code == 202
    answer = await ada.request(
        method, PATH, json=NIGHTLY if method == "PUT" else None, headers={"If-Match": tag}
    )
    assert answer.status_code == 412
    problem = answer.json()
    assert (problem["title"], "was changed since" in problem["detail"]) == (
        "It changed meanwhile",
        True,
    )
    assert (await ada.get(PATH)).json()["cron"] == "0 2 * * *"


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
async def test_a_pause_is_a_change_and_a_tick_is_none(
    ada: httpx.AsyncClient, site: Site, method: str
) -> None:
    tag = await stored(ada)
    await tick(site)
    assert (await ada.get(PATH)).headers["etag"] != tag, "a copy of it is outdated"
    await ada.post(f"{PATH}/pause", json={})
    assert await change(ada, method, {"If-Match": tag}) == 412
    await ada.post(f"{PATH}/resume", json={})
    assert await change(ada, method, {"If-Match": f'"other", {tag}'}) == 202


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("headers", [{"If-Match": "*"}, {"If-Match": '"0123-active"'}])
async def test_what_is_not_there_is_not_changed(
    ada: httpx.AsyncClient, method: str, headers: dict[str, str]
) -> None:
    missing = {404, 412} if method == "DELETE" else {412}
    assert await change(ada, method, headers) in missing
    assert (await ada.get(PATH)).status_code == 404


@pytest.mark.parametrize("headers", [{}, {"If-Match": "*"}])
async def test_whatever_is_there_may_be_replaced(
    ada: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    await stored(ada)
    assert await change(ada, "PUT", headers) == 202
    assert await change(ada, "DELETE", headers) == 202


async def test_of_two_who_read_the_same_one_replaces_it(ada: httpx.AsyncClient) -> None:
    tag = await stored(ada)
    answers = [await change(ada, "PUT", {"If-Match": tag}) for _ in range(2)]
    assert sorted(answers) == [202, 412]


def reads_without_parameters(site: Site) -> list[str]:
    """Of every list and single value that any reader may see."""
    no_json = {"/events/stream", "/metrics/prometheus", "/openapi.json", "/events/schema"}
    handlers = router(site.console).routes
    paths = {route.path for route in handlers if "GET" in route.methods}  # type: ignore[attr-defined]
    return sorted(path for path in paths if "{" not in path and not path.endswith(tuple(no_json)))


async def test_every_list_has_a_tag_and_is_not_sent_again(site: Site) -> None:
    caller = site.caller(Person())
    without = []
    for path in reads_without_parameters(site):
        first = await caller.get(path)
        if first.status_code == 400:
            continue  # it answers with parameters alone
        if first.status_code != 200 or first.headers["cache-control"] == "no-store":
            without.append(path)
            continue
        tag = first.headers.get("etag")
        assert tag, path
        assert "private" in first.headers["cache-control"], path
        again = await caller.get(path, headers={"If-None-Match": f'"other", {tag}'})
        if again.status_code == 200:  # it changed meanwhile, as ages and positions do
            assert again.headers["etag"] != tag, path
        else:
            assert (again.status_code, again.content) == (304, b""), path
    expected = {"/accounts", "/audit", "/audit/verify", "/audit/export"}
    assert {path.removeprefix("/api/v1") for path in without} - expected == set()


@pytest.mark.parametrize("path", ["/roles", "/alerts/rules", "/queues", "/alerts/channels"])
async def test_a_list_that_is_the_same_is_answered_304(site: Site, path: str) -> None:
    caller = site.caller(Person())
    tag = (await caller.get(f"/api/v1{path}")).headers["etag"]
    again = await caller.get(f"/api/v1{path}", headers={"If-None-Match": tag})
    assert (again.status_code, again.headers["etag"]) == (304, tag)


async def test_a_list_that_changed_is_sent(site: Site) -> None:
    caller = site.caller(Person())
    tag = (await caller.get("/api/v1/schedules")).headers["etag"]
    await stored(caller)
    again = await caller.get("/api/v1/schedules", headers={"If-None-Match": tag})
    assert (again.status_code, len(again.json()["items"])) == (200, 1)
