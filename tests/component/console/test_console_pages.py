"""Pages as HTML: what they show, that they run no text of a job, and what they load."""

from __future__ import annotations

import asyncio
import hashlib
import re
import tomllib
from importlib.resources import files

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import died, dispatched

from penstock.events.job import JobDispatched
from penstock.events.scaling import Reason, ScalingDecisionMade

ATTACK = '"><script>alert(1)</script>'
STATIC = files("penstock.console.pages") / "static"


async def page(site: Site, path: str, status: int = 200) -> str:
    answer = await site.client.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return answer.text


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/pools", "/pools/reports", "/decisions", "/jobs", "/failures", "/workflows"),
        *("/capacity", "/alerts", "/system", "/jobs?q=state:dead", "/jobs?q=color:red"),
        *(
            "/batches",
            "/queues",
            "/stuck",
            "/tags",
            "/bulk",
            "/schedules",
            "/events",
            "/events?noun=job",
            "/settings",
            "/workflows?state=failed",
        ),
    ],
)
async def test_each_page_has_the_navigation_and_nothing_inline(site: Site, path: str) -> None:
    text = await page(site, path)
    assert text.count('data-go="') == 9
    assert len(re.findall(r"<h1", text)) == 1
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text), "another host"


async def test_what_jobs_and_decisions_say_is_text(site: Site) -> None:
    decision = ScalingDecisionMade(
        pool="reports",
        current=0,
        target=1,
        reasons=(Reason(step="policy", rule=ATTACK, workers=1, text=ATTACK, values={"x": ATTACK}),),
        strategy=ATTACK,
        sla_seconds=30,
    )
    attacking = JobDispatched(
        job_id="job-001", queue="reports", function=ATTACK, payload=b"", tags=(ATTACK,)
    )
    await site.store(attacking, *died(1, ATTACK), decision)
    for path in ("/", "/jobs", "/jobs/job-001", "/decisions", f"/decisions/{decision.id}"):
        text = await page(site, path)
        assert "<script>alert" not in text, path
        assert "&lt;script&gt;alert" in text, path
    text = await page(site, f"/jobs?q={ATTACK}")
    assert "<script>alert" not in text


async def test_a_job_can_be_found_from_the_overview(site: Site) -> None:
    await site.store(dispatched(1), *died(1, "orders timed out"))
    overview = await page(site, "/")
    assert "1 job of shop.rebuild died within the last hour: TimeoutError." in overview
    jobs = await page(site, "/jobs?q=state:dead%20function:shop.rebuild")
    assert '<a href="/jobs/job-001" data-open' in jobs
    assert "orders timed out" in await page(site, "/jobs/job-001")


async def test_a_filter_that_cannot_be_read_says_what_was_expected(site: Site) -> None:
    assert "expected state:, queue:" in await page(site, "/jobs?q=color:red")


async def test_open_pages_are_sent_what_changed(site: Site) -> None:
    messages = site.console.hub.messages(["overview"])
    async with asyncio.timeout(10):
        assert await anext(messages) == b"retry: 1000\n\n"
        assert (await anext(messages)).startswith(b'event: state\ndata: {"state":"current"')
        await site.store(dispatched(1), *died(1, "x"))
        async for message in messages:
            if b"died within the last hour" in message:
                break
    assert message.startswith(b'data: <hx-partial hx-target="#attention" hx-swap="innerMorph">')
    await messages.aclose()  # type: ignore[attr-defined]
    assert site.console.hub.clients == 0


@pytest.mark.parametrize("path", ["/pools/gone", "/jobs/gone", "/decisions/gone"])
async def test_what_is_not_there_has_a_page_that_says_what(site: Site, path: str) -> None:
    assert re.search(r"<p>There is no (pool|job|decision)", await page(site, path, status=404))


async def test_an_unknown_topic_is_refused(site: Site) -> None:
    answer = await site.client.get("/live?t=secrets")
    assert (answer.status_code, "no topic 'secrets'" in answer.text) == (400, True)


async def test_pages_are_compressed(site: Site) -> None:
    answer = await site.client.get("/", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert "Promises" in answer.text


async def test_style_sheets_and_scripts_are_kept_for_ever_by_browsers(site: Site) -> None:
    text = await page(site, "/")
    paths = re.findall(r'(?:src|href)="(/static/[^"]+)"', text)
    assert len(paths) <= 7
    sizes = 0
    for path in paths:
        answer = await site.client.get(path, headers={"Accept-Encoding": "gzip"})
        assert "immutable" in answer.headers["cache-control"]
        sizes += int(answer.headers["content-length"])
    assert sizes < 60_000


def test_vendored_files_are_those_of_their_packages() -> None:
    listed = tomllib.loads((STATIC / "vendored.toml").read_text("utf-8"))
    there = {entry.name for entry in (STATIC / "vendor").iterdir() if "LICENSE" not in entry.name}
    assert there == set(listed)
    for name, about in listed.items():
        body = (STATIC / "vendor" / name).read_bytes()
        assert hashlib.sha512(body).hexdigest() == about["sha512"], name
        assert about["package"] and about["version"] and about["license"]
