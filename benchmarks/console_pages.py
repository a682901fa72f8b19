"""Pages of the console: one job, the overview in a browser, and what open pages are sent."""

from __future__ import annotations

import asyncio
import http.client
import random
import shutil
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.async_api import async_playwright

from console_load import lives
from console_process import ConsoleProcess, append, connected, percentiles
from console_requests import Caller
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import Outgoing
from penstock.events.envelope import Event, encode
from penstock.events.job import JobDispatched, JobProgressed, JobStarted
from penstock.events.snapshot import HostSnapshot, PoolSnapshot
from penstock.events.subjects import Subjects
from penstock.runtime.broker import Broker

Row = dict[str, Any]
_CHROMIUM = shutil.which("chromium")
_MOST_SECONDS = 240.0
_PATIENCE_SECONDS = 10.0
_LONG_JOB = "long-job"
_OBSERVE = """
window.changes = [];
const waiting = () => document.querySelector("#totals dd").textContent;
let shown = waiting();
new MutationObserver(() => {
  if (waiting() === shown) return;
  shown = waiting();
  window.changes.push(performance.timeOrigin + performance.now());
})
  .observe(document.body, {subtree: true, childList: true, characterData: true});
"""
_LARGEST_PAINT = """
new Promise(resolve => new PerformanceObserver(list => resolve(list.getEntries().at(-1).startTime))
  .observe({type: "largest-contentful-paint", buffered: true}))
"""


async def detail(broker: Broker, folder: Path, jobs: int, long_events: int, rounds: int) -> Row:
    """One job out of many, and one with very many events.

    Args:
        jobs: in the log.
        long_events: of the long job.
        rounds: requests.
    """
    async with connected(broker.url) as bus:
        events = list(lives(jobs))
        await append(bus, events)
        last = await append(bus, _long(long_events))
    with ConsoleProcess(broker.url, folder) as console:
        await console.folded(last, _MOST_SECONDS)
        caller, chance = Caller(console.port), random.Random(3)
        ids = [chance.choice(events).job_id for _ in range(rounds)]
        took = [caller.get(f"/api/v1/jobs/{job_id}")[0] for job_id in ids]
        pages = [caller.get(f"/jobs/{job_id}")[0] for job_id in ids]
        long = [caller.get(f"/jobs/{_LONG_JOB}")[0] for _ in range(5)]
        caller.close()
    return {
        **percentiles(took),
        "page": percentiles(pages),
        "log_events": last,
        "long_job_events": long_events + 2,
        "long_job_page_ms": round(statistics.median(long) * 1000, 1),
    }


def _long(events: int) -> list[Event]:
    about = {"job_id": _LONG_JOB, "queue": "reports"}
    progress = [JobProgressed(job_id=_LONG_JOB, done=n, total=events) for n in range(events)]
    return [
        JobDispatched(**about, function="shop.rebuild", payload=b""),
        JobStarted(**about, attempt=1, host="h1", worker="w1"),
        *progress,
    ]


async def overview(broker: Broker, folder: Path, rounds: int) -> Row:
    """The first page over a full database: its first byte, and its load by a browser."""
    async with connected(broker.url) as bus:
        await _snapshots(bus)
    with ConsoleProcess(broker.url, folder) as console:
        connection = http.client.HTTPConnection("127.0.0.1", console.port)
        first: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            connection.request("GET", "/", headers={"Accept-Encoding": "gzip"})
            answer = connection.getresponse()
            answer.read(1)
            first.append(time.perf_counter() - began)
            answer.read()
        connection.close()
        row = {f"first_byte_{name}": value for name, value in percentiles(first).items()}
        return row | (await _loaded(console.url, 5) if _CHROMIUM else {"browser": "missing"})


async def _snapshots(bus: NatsBus) -> None:
    subjects, at = Subjects(), datetime.now(UTC)
    for pool in ("reports", "imports"):
        snapshot = PoolSnapshot(pool=pool, queues=(pool,), waiting=7, workers_ready=4, at=at)
        await bus.append(Outgoing(subjects.pool_snapshot(pool), encode(snapshot)))
    for number in range(5):
        host = HostSnapshot(host=f"host-{number}", cpu_cores=16, memory_bytes=2**36, at=at)
        await bus.append(Outgoing(subjects.host_snapshot(host.host), encode(host)))


async def _loaded(url: str, loads: int) -> Row:
    """Largest contentful paint, bytes and requests of the first page, nothing stored before."""
    paints: list[float] = []
    sizes: list[int] = []
    counts: list[int] = []
    async with async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        for _ in range(loads):
            context = await browser.new_context(viewport={"width": 1280, "height": 800})
            load = _Load(await context.new_page())
            paints.append(await load.run(await context.new_cdp_session(load.page), url))
            sizes.append(round(load.received_bytes))
            counts.append(load.requests)
            await context.close()
        await browser.close()
    return {
        "largest_paint_ms": round(statistics.median(paints)),
        "received_kb": round(statistics.median(sizes) / 1000, 1),
        "requests": max(counts),
    }


class _Load:
    """One load of a page by a browser that has nothing stored.

    Attributes:
        received_bytes: over the network, compressed.
        requests: that the page made.
    """

    def __init__(self, page: Any) -> None:
        self.page, self.received_bytes, self.requests = page, 0.0, 0

    async def run(self, protocol: Any, url: str) -> float:
        """Milliseconds until the largest content was painted."""
        await protocol.send("Network.enable")
        protocol.on("Network.loadingFinished", self._finished)
        self.page.on("request", self._requested)
        await self.page.goto(f"{url}/", wait_until="load")
        painted = float(await self.page.evaluate(_LARGEST_PAINT))
        await self.page.wait_for_timeout(500)  # what the page asks for by itself
        return painted

    def _finished(self, event: dict[str, Any]) -> None:
        self.received_bytes += event["encodedDataLength"]

    def _requested(self, _: Any) -> None:
        self.requests += 1


async def push(broker: Broker, folder: Path, pages: int, changes: int) -> Row:
    """From a stored event to open pages: raw connections, and one page in a browser.

    Args:
        pages: that are open.
        changes: stored one by one, each after the one before has reached all pages.
    """
    row: Row = {"pages": pages, "changes": changes}
    async with connected(broker.url) as bus:
        with ConsoleProcess(broker.url, folder) as console:
            await _store(bus, 0)
            listeners = [_Listener(console.port) for _ in range(pages)]
            listening = [asyncio.create_task(one.run()) for one in listeners]
            try:
                async with _browser(console.url) as page:
                    await asyncio.sleep(1.0)  # the first messages, of what was there before
                    cpu, began = console.cpu_seconds, time.perf_counter()
                    waits, seen = await _changes(bus, listeners, page, changes)
                    used = (console.cpu_seconds - cpu) / (time.perf_counter() - began)
            finally:
                for task in listening:
                    task.cancel()
                await asyncio.gather(*listening, return_exceptions=True)
    row |= {f"received_{name}": value for name, value in percentiles(waits).items()}
    if seen:
        row |= {f"shown_{name}": value for name, value in percentiles(seen).items()}
    return {**row, "console_cpu_share_of_a_core": round(used, 2)}


class _Listener:
    """One open page, as its connection alone.

    Attributes:
        received_at: when the last fragments came, as of ``time.time``.
    """

    def __init__(self, port: int) -> None:
        self._port, self.received_at = port, 0.0

    async def run(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)
        writer.write(b"GET /live?t=overview HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        try:
            is_named = False
            while line := await reader.readline():
                if line.startswith(b"event:"):
                    is_named = True
                elif line.startswith(b"data:") and not is_named:
                    self.received_at = time.time()
                elif line == b"\n":
                    is_named = False
        finally:
            writer.close()


@asynccontextmanager
async def _browser(url: str) -> AsyncIterator[Any]:
    """A page that notes its changes; None where there is no browser."""
    if _CHROMIUM is None:
        yield None
        return
    async with async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 800})
        await page.goto(f"{url}/")
        await page.evaluate(_OBSERVE)
        yield page
        await browser.close()


async def _changes(
    bus: NatsBus, listeners: list[_Listener], page: Any, changes: int
) -> tuple[list[float], list[float]]:
    """Seconds until each connection, and until the page's content, had each change."""
    waits: list[float] = []
    seen: list[float] = []
    chance = random.Random(5)
    for number in range(1, changes + 1):
        before = await page.evaluate("window.changes.length") if page else 0
        stored_at = await _store(bus, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while any(one.received_at < stored_at for one in listeners):
                    await asyncio.sleep(0.005)
                while page and await page.evaluate("window.changes.length") == before:
                    await asyncio.sleep(0.005)
        received = [one.received_at for one in listeners]
        waits += [(at - stored_at) if at >= stored_at else _PATIENCE_SECONDS for at in received]
        if page:
            times = (await page.evaluate("window.changes"))[before:]
            seen.append(times[0] / 1000 - stored_at if times else _PATIENCE_SECONDS)
        await asyncio.sleep(chance.uniform(0.15, 0.45))
    return waits, seen


async def _store(bus: NatsBus, number: int) -> float:
    """One more waiting job; when it was sent to be stored, as of ``time.time``."""
    event = JobDispatched(job_id=f"push-{number}", queue="reports", function="f", payload=b"")
    sent_at = time.time()
    await bus.append(Outgoing(Subjects().event(event), encode(event)))
    return sent_at
