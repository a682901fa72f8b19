"""Pages of past moments: what they show, what they do not offer, and where their links lead."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote, urlsplit

import httpx
import pytest
from litestar.routes import HTTPRoute
from tests.component.console.conftest import Site
from tests.component.console.test_api_acting import Person
from tests.component.console.test_as_of import decided, dispatched, moment, store
from tests.component.console.test_console_api import get

from penstock.console.app import application
from penstock.console.read_models import time_marks
from penstock.console.web.credentials import Local
from penstock.console.web.past_requests import answers_as_of
from penstock.events.scaling import PromiseBurning, SlaBreached
from penstock.events.snapshot import Budget
from penstock.events.worker import HostJoined, HostLost

ADDRESS = re.compile(r'(?:href|hx-get)="(/[^"#]*)')


@pytest.fixture
def browser(site: Site) -> httpx.AsyncClient:
    """That of a person who may do anything."""
    client = site.caller(Person())
    client.headers.update({"Accept": "text/html", "Sec-Fetch-Site": "same-origin"})
    return client


async def page(browser: httpx.AsyncClient, path: str, status: int = 200) -> str:
    answer = await browser.get(path)
    assert answer.status_code == status, answer.text
    return answer.text


def breach() -> SlaBreached:
    return SlaBreached(pool="reports", oldest_waiting_seconds=41.0, sla_seconds=30)


async def two_stages(site: Site) -> tuple[str, str]:
    """Something to look back at: a moment, and the id of a decision made by then."""
    await store(site, 0)
    first = (await get(site, "/decisions"))["items"][0]["id"]
    at = moment(site)
    await store(site, 1)
    await store(site, 2)
    return at, first


def pages_with_a_past(decision: str) -> tuple[str, ...]:
    return (
        *("/", "/pools", "/pools/reports", "/pools/reports?seconds=3600", "/decisions"),
        *("/decisions?pool=reports&every=true", f"/decisions/{decision}", "/jobs/job-001"),
        *("/search", "/search?q=rep", "/queues", "/capacity", "/capacity/h1"),
    )


def as_of(path: str, at: str) -> str:
    return f"{path}{'&' if '?' in path else '?'}as_of={at}"


def test_every_page_that_has_a_past_is_tried_here(site: Site) -> None:
    tried = {urlsplit(path).path for path in pages_with_a_past("x")}
    for route in application(site.console, Local()).routes:
        if isinstance(route, HTTPRoute) and not route.path_format.startswith("/api/"):
            pattern = re.sub(r"\{[^}]*\}", "[^/]+", route.path_format)
            has_past = any(answers_as_of(handler.opt) for handler in route.route_handlers)
            matching = [path for path in tried if re.fullmatch(pattern, path)]
            assert bool(matching) == has_past, route.path_format


async def test_a_page_of_a_past_moment_says_so_and_offers_nothing_to_do(
    site: Site, browser: httpx.AsyncClient
) -> None:
    at, decision = await two_stages(site)
    for path in pages_with_a_past(decision):
        text = await page(browser, as_of(path, at))
        assert f">{at[11:19]}, not now</strong>" in text, path
        assert '<body class="past">' in text, path
        for live in ("hx-sse", "data-act", 'method="post"', 'id="standing"'):
            assert live not in text, (path, live)
        assert "hx-sse" in (now := await page(browser, path)), path
        assert "not now" not in now, path


async def test_a_page_of_a_past_moment_shows_what_was_then(
    site: Site, browser: httpx.AsyncClient
) -> None:
    at, _ = await two_stages(site)
    then, now = (
        await page(browser, f"/pools/reports?as_of={at}"),
        await page(browser, "/pools/reports"),
    )
    assert "2 workers for what waits" in then
    assert "5 workers for what waits" not in then
    assert "5 workers for what waits" in now
    assert f'data-as-of="{datetime.fromisoformat(at).isoformat()}"' in then
    assert "state waiting" in await page(browser, f"/jobs/job-001?as_of={at}")
    assert "state completed" in await page(browser, "/jobs/job-001")
    text = await page(browser, f"/?as_of={at}")
    assert "worker-hours" not in text
    assert "No worker was needed" not in text
    assert "Reports of workers are not kept" in text


async def test_every_link_of_a_page_of_the_past_keeps_its_moment(
    site: Site, browser: httpx.AsyncClient
) -> None:
    at, decision = await two_stages(site)
    for path in pages_with_a_past(decision):
        text = await page(browser, as_of(path, at))
        without = [
            address
            for address in ADDRESS.findall(text.replace(f'data-now href="{path}"', ""))
            if not address.startswith(("/static/", "/api/"))
            and parse_qs(urlsplit(address.replace("&amp;", "&")).query).get("as_of") is None
        ]
        now = quote(path, safe="/?=&").replace("&", "&amp;")
        assert set(without) <= {now}, (path, without)
        searches = text.count('method="get"')
        assert text.count('name="as_of"') == searches >= 2, path


async def test_texts_of_jobs_cannot_forge_a_link(site: Site, browser: httpx.AsyncClient) -> None:
    await store(site, 0)
    forged = 'href="/logout" <form method="get">'
    text = await page(browser, f"/search?q={quote(forged)}&as_of={moment(site)}")
    assert "&lt;form method=" in text
    assert 'href="/logout' not in text


async def test_a_page_without_a_past_shows_nothing_of_now_in_its_place(
    site: Site, browser: httpx.AsyncClient
) -> None:
    await store(site, 0)
    at = moment(site)
    text = await page(browser, f"/failures?as_of={at}", 400)
    assert "This page has no past" in text
    assert f"{at[11:19]}, not now" in text
    assert 'data-now href="/failures"' in text
    assert f'href="/pools?as_of={at}"' in text
    assert "<table" not in text
    assert "This page has no past" in await page(browser, f"/jobs?q=state:dead&as_of={at}", 400)


async def test_what_is_not_kept_and_what_is_no_moment_have_pages(
    site: Site, browser: httpx.AsyncClient
) -> None:
    await store(site, 0)
    text = await page(browser, "/pools?as_of=2020-01-01T00:00:00Z", 410)
    assert "not kept" in text
    assert "2020-01-01 00:00:00, not now" in text
    assert 'id="time-now" data-now href="/pools"' in text
    text = await page(browser, "/pools?as_of=yesterday", 400)
    assert "expected a time such as" in text
    assert "yesterday" not in "".join(ADDRESS.findall(text))


async def test_marks_are_stored_moments_at_which_their_events_are_shown(site: Site) -> None:
    await store(site, 0)
    budget = Budget(sla_seconds=30, quantile=0.99, window_seconds=60, jobs=9, late=3)
    lost = HostLost(host="h1", silent_seconds=9)
    await site.store(breach())
    await site.store(PromiseBurning(pool="reports", pace="fast", budget=budget))
    await site.store(HostJoined(host="h2", cpu_cores=4, memory_bytes=2**33), lost)
    answer = await get(site, "/marks")
    shown = [(one["kind"], one["about"], one["text"]) for one in answer["items"]]
    assert shown == [
        ("decision", "reports", "0 → 2 workers"),
        ("breach", "reports", "a job waits longer than promised"),
        ("breach", "reports", "the budget of the promise burns"),
        ("host", "h2", "joined"),
        ("host", "h1", "was lost"),
    ]
    made = answer["items"][0]["at"]
    assert answer["since"] <= made <= answer["until"]
    listed = (await get(site, f"/decisions?as_of={made}"))["items"]
    assert [(one["current"], one["target"]) for one in listed] == [(0, 2)]


async def test_one_steps_from_mark_to_mark_and_back_to_now(
    site: Site, browser: httpx.AsyncClient
) -> None:
    await store(site, 0)
    await site.store(breach())
    await store(site, 1)
    await store(site, 2)
    marks = (await get(site, "/marks"))["items"]
    assert [one["kind"] for one in marks] == ["decision", "breach", "decision"]

    def step(text: str, name: str) -> str | None:
        link = re.search(rf'id="time-{name}" data-now href="([^"]*)"', text)
        return link[1].replace("&amp;", "&") if link else None

    path, seen = "/pools/reports?seconds=3600", list[str]()
    while (earlier := step(await page(browser, path), "earlier")) is not None:
        assert earlier.startswith("/pools/reports?seconds=3600&as_of=")
        [at] = parse_qs(urlsplit(earlier).query)["as_of"]
        seen.append(at)
        path = earlier
    assert seen == [one["at"] for one in reversed(marks)]
    ahead = list[str]()
    while (later := step(text := await page(browser, path), "later")) is not None:
        [at] = parse_qs(urlsplit(later).query)["as_of"]
        ahead.append(at)
        path = later
    assert ahead == [one["at"] for one in marks[1:]]
    assert step(text, "now") == "/pools/reports?seconds=3600"


async def test_marks_are_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_marks, "MOST_OF_A_KIND", 3)
    await site.store(*(breach() for _ in range(5)), *(decided(n + 1, n) for n in range(5)))
    answer = await get(site, "/marks")
    assert [one["kind"] for one in answer["items"]].count("breach") == 3
    assert [one["text"] for one in answer["items"]][-1] == "4 → 5 workers"
    assert answer["left_out"]


async def test_nothing_stored_yet_has_no_past(site: Site, browser: httpx.AsyncClient) -> None:
    answer = await get(site, "/marks")
    assert (answer["since"], answer["items"]) == (None, [])
    assert "There is no past yet" in await page(browser, "/")


async def test_nothing_acts_from_a_page_of_the_past(site: Site, browser: httpx.AsyncClient) -> None:
    await store(site, 0)
    at = moment(site)
    for path in ("/acts/job.cancel/job-001", "/decisions/x/recompute", "/bulk/preview"):
        answer = await browser.post(f"{path}?as_of={at}")
        assert (answer.status_code, "nothing can be done" in answer.text.lower()) == (400, True)
    assert "This page has no past" in await page(
        browser, f"/acts/job.cancel/job-001?as_of={at}", 400
    )
    assert (await get(site, "/jobs/job-001"))["job"]["state"] == "waiting"


@pytest.mark.parametrize("zone", ["", "%2B01:00"])
async def test_the_field_for_a_time_is_understood_with_and_without_zone(
    site: Site, browser: httpx.AsyncClient, zone: str
) -> None:
    await store(site, 0)
    await site.store(dispatched(3))
    now = datetime.fromtimestamp(site.bus.now(), UTC)
    text = now.isoformat().removesuffix("+00:00")
    answer = await browser.get(f"/?as_of={text}{zone}")
    assert answer.status_code == (410 if zone else 200)
