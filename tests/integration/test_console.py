"""The console as a process over a real broker, in a real browser, and with its own key."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from tests.integration.guarded import GuardedBroker
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.cli import main as cli
from penstock.config import Settings
from penstock.console.app import application, assemble
from penstock.console.web.credentials import Local
from penstock.events.envelope import Event, encode
from penstock.events.job import JobDead, JobDispatched, JobError, JobStarted
from penstock.events.subjects import Subjects
from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.paths import free_port
from penstock.runtime.service import Service

CHROMIUM = shutil.which("chromium")
PATIENCE_MS = 60_000
PAGES = ("/", "/pools", "/pools/reports", "/decisions", "/jobs", "/jobs?q=state:dead", "/alerts")


class Running:
    """A console process, which tests kill and start again over the same files.

    Args:
        settings: where its broker is.
        folder: for its files.
        token: that is sent with each request; empty for none.
        further: variables.

    Attributes:
        started_at: when the process was started last, on the monotonic clock.
    """

    def __init__(self, settings: Settings, folder: Path, token: str = "", **further: str) -> None:
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "console.log"
        self._environment = {
            "PENSTOCK_PREFIX": settings.prefix,
            "PENSTOCK_NATS__URL": settings.nats.url,
            "PENSTOCK_HTTP__ADDRESS": "",
            "PENSTOCK_CONSOLE__PORT": str(self.port),
            "PENSTOCK_CONSOLE__FOLDER": str(folder / "console"),
            "PENSTOCK_POOLS__REPORTS__SLA_SECONDS": "30",
            **further,
        }
        self.child = self._start()

    def _start(self) -> Child:
        self.started_at = time.monotonic()
        argv = [sys.executable, "-m", cli.__name__, "console"]
        return children.start(argv, name="console", log=self.log, env=self._environment)

    def restart(self) -> None:
        self.child = self._start()

    def get(self, path: str) -> Any:
        """The answer; None while no server listens."""
        return self._ask(Request(f"{self.url}/api/v1{path}", headers=self._headers))

    def post(self, path: str) -> Any:
        """Acts; None while no server listens."""
        headers = {**self._headers, "Content-Type": "application/json"}
        return self._ask(Request(f"{self.url}/api/v1{path}", b"{}", headers, method="POST"))

    def _ask(self, request: Request) -> Any:
        try:
            with urlopen(request, timeout=5) as answer:
                return json.load(answer)
        except OSError:
            return None

    async def until(self, path: str, fits: Any) -> Any:
        def answer() -> Any:
            got = self.get(path)
            return got if got is not None and fits(got) else None

        return await eventually(answer, 30, f"{path}; {self.log.read_text()[-2000:]}")


def died(job_id: str) -> list[Event]:
    error = JobError(kind="builtins.TimeoutError", message="orders timed out")
    about = {"job_id": job_id, "queue": "reports"}
    return [
        JobDispatched(**about, function="shop.rebuild", payload=b""),
        JobStarted(**about, attempt=1, host="h1", worker="w1"),
        JobDead(**about, function="shop.rebuild", error=error, attempt=1),
    ]


async def store(bus: NatsBus, subjects: Subjects, *events: Event) -> int:
    sequence = 0
    for event in events:
        sequence = await bus.append(Outgoing(subjects.event(event), encode(event)))
    return sequence


@pytest.fixture
async def bus(settings: MakeSettings) -> AsyncIterator[NatsBus]:
    bus = await connect(settings(), makes_streams=True)
    yield bus
    await bus.close()


@pytest.fixture
def console(settings: MakeSettings, bus: NatsBus, tmp_path: Path) -> Iterator[Running]:
    console = Running(settings(), tmp_path)
    yield console
    console.child.end(10.0)


async def test_it_goes_on_after_a_kill_and_reads_what_was_stored_meanwhile(
    settings: MakeSettings, bus: NatsBus, console: Running
) -> None:
    subjects = Subjects(settings.prefix)
    sequence = await store(bus, subjects, *died("job-1"))
    await console.until("/health", lambda h: h["standing"]["position"] == sequence)
    console.child.signal(signal.SIGKILL)
    await console.child.ended()
    sequence = await store(bus, subjects, *died("job-2"))
    console.restart()
    await console.until("/health", lambda h: h["standing"]["position"] == sequence)
    assert console.get("/jobs/stats")["dead"] == 2
    assert {job["id"] for job in console.get("/jobs?state=dead")["items"]} == {"job-1", "job-2"}
    assert console.get("/jobs/job-2")["error_message"] == "orders timed out"


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing; install Debian's package")
async def test_a_browser_shows_what_changes_and_says_when_it_hears_nothing(
    settings: MakeSettings, bus: NatsBus, console: Running
) -> None:
    from playwright.async_api import async_playwright

    await console.until("/health", lambda health: health["state"] == "current")
    problems: list[str] = []
    requests: list[str] = []
    async with async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        context = await browser.new_context(viewport={"width": 360, "height": 800})
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        await page.goto(f"{console.url}/")
        await page.wait_for_selector("#attention .quiet")
        assert len(requests) <= 8, requests

        await store(bus, Subjects(settings.prefix), *died("job-1"))
        await page.wait_for_selector("#attention .warning")
        assert "1 job of shop.rebuild died" in await page.inner_text("#attention")
        await page.keyboard.press("g")
        await page.keyboard.press("j")
        await page.wait_for_url("**/jobs")
        await page.keyboard.press("j")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/jobs/job-1")
        assert "orders timed out" in await page.inner_text("main")

        for path in PAGES:
            await page.goto(f"{console.url}{path}")
            width = "document.documentElement.scrollWidth - innerWidth"
            assert await page.evaluate(width) <= 0, f"{path} is wider than 360 px"

        console.child.signal(signal.SIGSTOP)
        await page.wait_for_selector("#standing[data-state='stale']")
        assert "nothing heard for" in await page.inner_text("#standing-text")
        console.child.signal(signal.SIGCONT)
        await browser.close()
    assert problems == []
    assert {url.split("/")[2] for url in requests} == {f"127.0.0.1:{console.port}"}


async def test_its_own_key_is_enough_and_nothing_is_refused(
    guarded: GuardedBroker, settings: MakeSettings, tmp_path: Path
) -> None:
    settings.prefix = "penstock"
    owner = await connect(guarded.settings(settings, "orchestrator"), makes_streams=True)
    subjects = Subjects("penstock")
    own = guarded.settings(settings, "console-reader")
    bus = await connect(own)
    bus.reader.makes_consumers = True
    console, service = assemble(bus, own, tmp_path), Service("console", own, bus)
    for run in (console.projection.run, console.present.run, console.hub.run):
        service.spawn(run(service), "part")
    application(console, Local())
    sequence = await store(owner, subjects, *died("job-1"))
    assert await console.projection.reached(sequence, 20)
    from penstock.console.read_models.job_detail import read_job

    job = await read_job(console, "job-1")
    assert job is not None
    assert job.job.state == "dead"
    service.stopping.set()
    await service.end_tasks()
    console.close()
    await bus.close()
    await owner.close()
    assert guarded.violations() == []
