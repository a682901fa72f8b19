"""Hostile texts wherever an installation lets them in, on every page that a browser finds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from tests.integration.test_console import Running, store
from tests.integration.test_console_in_browser import SERIOUS, VENDOR
from tests.making import MakeSettings

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.events.batch import BatchCreated
from penstock.events.envelope import Event, encode, utc_now
from penstock.events.graph import GraphStarted, GraphStep
from penstock.events.job import JobDead, JobDispatched, JobError, JobStarted
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.snapshot import HostSnapshot, PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.operations.console_access import ConsoleAccess

CHROMIUM = shutil.which("chromium")
MARK = "pwned"
ATTACK = (
    "\"'--></title></textarea><img src=x onerror=window.pwned=1><script>window.pwned=1</script>"
    "<svg onload=window.pwned=1><a href=javascript:window.pwned=1>{{7*7}}${7*7}\u202e"
)
PERSON, PASSWORD = "ada", "correct horse battery"
OWN = {"Sec-Fetch-Site": "same-origin"}
START = (
    *("/", "/pools/reports", "/queues", "/decisions", "/jobs", "/jobs/job-1", "/failures"),
    *("/workflows", "/workflows/sales", "/batches", "/batches/november", "/schedules"),
    *("/capacity", "/alerts", "/alerts/silences", "/system", "/events", "/settings"),
    *("/costs", "/definitions", "/records", "/queues/reports", "/search?q=%22%27--%3E%3C"),
    *("/jobs/job-2/payload", "/api-docs", "/metrics-catalog"),
    *("/account", "/accounts", "/audit", "/jobs?q=state:dead+error:%22%3Cimg%22"),
    *("/jobs/%3Cimg%20src=x%20onerror=pwned=1%3E", "/login?next=/%22%3E%3Cimg%20src=x%3E"),
    "/jobs?q=%22%3E%3Cscript%3Ewindow.pwned=1%3C/script%3E",
)
MOST_PAGES = 68
FOREIGN_ELEMENTS = (
    "img[src='x'], svg[onload], script:not([src]), a[href^='javascript:'], [onerror], [onload]"
)


def hostile_events() -> list[Event]:
    about: dict[str, Any] = {"job_id": "job-1", "queue": "reports"}
    error = JobError(kind=ATTACK, message=ATTACK, traceback=ATTACK)
    reason = Reason(step=ATTACK, rule=ATTACK, workers=9, text=ATTACK, values={ATTACK: ATTACK})
    return [
        JobDispatched(**about, function=ATTACK, payload=ATTACK.encode(), tags=(ATTACK,)),
        JobStarted(**about, attempt=1, host=ATTACK, worker=ATTACK),
        JobDead(**about, function=ATTACK, error=error, attempt=1),
        BatchCreated(batch_id="november", title=ATTACK, total=2),
        GraphStarted(
            graph_id="sales",
            title=ATTACK,
            steps=(
                GraphStep(name=ATTACK, payload=b""),
                GraphStep(name=ATTACK, payload=b"", needs=(0,)),
            ),
        ),
        ScalingDecisionMade(
            pool="reports",
            current=4,
            target=8,
            reasons=(reason,),
            strategy=ATTACK,
            sla_seconds=30,
            placement={ATTACK: 8},
        ),
    ]


async def fill(bus: NatsBus, settings: Settings, running: Running) -> None:
    subjects = Subjects(settings.prefix)
    client = Client.over(bus, settings, source="test")
    await client.dispatch_named("shop.render", {ATTACK: ATTACK}, queue="reports", job_id="job-2")
    await client.pause_queue("reports", ATTACK)
    pool = PoolSnapshot(pool="reports", queues=("reports",), waiting=120, at=utc_now())
    host = HostSnapshot(host="h1", cpu_cores=16, memory_bytes=2**36, at=utc_now())
    await bus.append(Outgoing(subjects.pool_snapshot("reports"), encode(pool)))
    await bus.append(Outgoing(subjects.host_snapshot("h1"), encode(host)))
    access = ConsoleAccess(bus, subjects, "test")
    await access.create_token(ATTACK.replace("\u202e", "")[:100], ["read"], owner=ATTACK)
    await access.add_account(PERSON, "admin")
    secret, _ = await access.make_setup_link(PERSON)
    last = await store(bus, subjects, *hostile_events())
    await running.until("/health", lambda health: health["standing"]["position"] >= last)
    form = {"password": PASSWORD, "again": PASSWORD}
    async with httpx.AsyncClient(base_url=running.url, headers=OWN, timeout=20) as browser:
        assert (await browser.post(f"/setup/{PERSON}/{secret}", data=form)).status_code == 303
        # who may not get in writes into the audit log all the same
        wrong = {"account": ATTACK[:64], "password": ATTACK, "next": "/"}
        assert (await browser.post("/login", data=wrong)).status_code == 403


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing; install Debian's package")
async def test_no_text_of_an_installation_runs_in_a_browser(
    settings: MakeSettings, tmp_path: Path
) -> None:
    from playwright.async_api import async_playwright

    bus = await connect(settings(), makes_streams=True)
    running = Running(settings(), tmp_path)
    problems: list[str] = []
    shown: set[str] = set()
    try:
        await running.until("/health", lambda health: health["state"] == "current")
        await fill(bus, settings(), running)
        async with async_playwright() as tools:
            browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            context = await browser.new_context(user_agent=re.sub(r"[^ -~]", "", ATTACK))
            page = await context.new_page()
            page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
            page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
            page.on("console", lambda message: problems.append(f"{page.url}: {message.text}"))
            await page.goto(f"{running.url}/login")
            await page.fill("#account", PERSON)
            await page.fill("#password", PASSWORD)
            await page.press("#password", "Enter")
            await page.wait_for_url(f"{running.url}/")
            waiting, seen = [*START], set[str]()
            while waiting and len(seen) < MOST_PAGES:
                path = waiting.pop(0)
                if path in seen:
                    continue
                seen.add(path)
                await page.goto(f"{running.url}{path}", wait_until="load")
                if await page.evaluate("window.pwned !== undefined"):
                    problems.append(f"{path}: the text ran")
                if foreign := await page.locator(FOREIGN_ELEMENTS).count():
                    problems.append(f"{path}: {foreign} elements made of text")
                if MARK in await page.inner_text("body"):
                    shown.add(urlsplit(path).path)
                links = await page.eval_on_selector_all(
                    "a[href]", "links => links.map(link => link.getAttribute('href'))"
                )
                waiting += [urljoin(path, link) for link in links if is_page(link)]
            for path in ("/account", "/accounts", "/audit?verify=true", "/elevate"):
                await page.goto(f"{running.url}{path}", wait_until="load")
                for width in (360, 1280):
                    await page.set_viewport_size({"width": width, "height": 900})
                    problems += await flaws(page, f"{path} at {width}")
            await browser.close()
    finally:
        running.child.end(10.0)
        await bus.close()
    assert [text for text in problems if "404" not in text and "400" not in text] == []
    # The texts were there: of the job, its failure, the workflow, the decision, the audit log.
    assert {"/jobs", "/jobs/job-1", "/failures", "/workflows/sales", "/audit"} <= shown
    assert any(path.startswith("/decisions/") for path in shown), shown


async def flaws(page: Any, where: str) -> list[str]:
    """What axe finds serious, and whether the page is wider than the screen."""
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate((VENDOR / "axe.min.js").read_text("utf-8"))
    checked = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    serious = [one for one in checked["violations"] if one["impact"] in SERIOUS]
    wider = await page.evaluate("document.documentElement.scrollWidth - innerWidth") > 0
    named = [f"{where}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in serious]
    return [*named, *([f"{where}: wider than the screen"] if wider else [])]


def is_page(link: str) -> bool:
    """Whether a link leads to a page of the console; answers of the API and files are no HTML."""
    others = ("//", "/api/", "/static/", "/login/", "/records.csv")
    return link.startswith("/") and not link.startswith(others)
