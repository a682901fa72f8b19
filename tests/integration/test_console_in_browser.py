"""Every page in a real browser: accessible, small, quiet, in both themes and narrow."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.integration.filled_console import (
    BROKEN_WAITING,
    DEAD,
    PASSWORD,
    PERSON,
    POOLS,
    Filled,
)
from tests.integration.test_console import Running
from tests.making import MakeSettings

from penstock.bus.nats import connect
from penstock.runtime.broker import Broker

CHROMIUM = shutil.which("chromium")
VENDOR = Path(__file__).parent / "vendor"
SCREENSHOTS = os.environ.get("CONSOLE_SCREENSHOTS", "")
"""A folder, where pictures for the documentation are wanted."""
ALL_SCREENSHOTS = os.environ.get("CONSOLE_ALL_SCREENSHOTS", "")
"""A folder, where a picture of every page in every look is wanted."""
PICTURED = {
    "/": "overview",
    "/pools/reports": "pool",
    "/workflows/sales": "workflow",
    "/jobs?q=state:dead": "jobs",
}
NARROW = 800
"""Up to which width a row of a table is a card."""
BROKEN_WORDS = r"""
[...document.querySelectorAll('td, th')].flatMap((cell) => [...cell.childNodes]).filter((node) => {
  const word = node.nodeType === Node.TEXT_NODE ? node.data.trim() : '';
  if (!/^\S{1,9}$/.test(word)) return false;
  const range = document.createRange(), begin = node.data.indexOf(word);
  range.setStart(node, begin);
  range.setEnd(node, begin + word.length);
  return new Set([...range.getClientRects()].map((line) => line.top)).size > 1;
}).map((node) => node.data.trim())
"""
"""Words of up to nine letters, each the only one of its cell, that stand on two lines."""
LOOKS = [(width, theme) for width in (360, 1280) for theme in ("light", "dark")]
SERIOUS = {"serious", "critical"}
PATIENCE_MS = 30_000
MOST_REQUESTS, MOST_BYTES = 8, 120_000
NOT_FOUND = "Failed to load resource: the server responded with a status of 404 (Not Found)"
MISSING_PAGES = ("/acts/gone/x", "/jobs/gone")
"""Of those that are looked at, each other one is there; no host vouches for the worker."""
_REFRESH = """() => Promise.all([...document.querySelectorAll("[data-refresh]")].map((part) =>
  new Promise((resolve) => {
    part.addEventListener("htmx:finally:request", resolve, {once: true});
    htmx.trigger(part, "refresh");
  })))"""
in_one_loop = pytest.mark.asyncio(loop_scope="module")
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="chromium is missing; install Debian's package"
)


def test_axe_is_that_of_its_package() -> None:
    [about] = tomllib.loads((VENDOR / "vendored.toml").read_text("utf-8")).values()
    body = (VENDOR / "axe.min.js").read_bytes()
    assert hashlib.sha512(body).hexdigest() == about["sha512"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def filled(
    session_broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Filled]:
    """One for all tests of this file: each acts on something else."""
    folder = tmp_path_factory.mktemp("console")
    settings = MakeSettings(lambda: session_broker.url, str(folder / "run"))
    bus = await connect(settings(), makes_streams=True)
    running = Running(settings(), folder, **POOLS)
    refreshing: asyncio.Task[None] | None = None
    try:
        await running.until("/health", lambda health: health["state"] == "current")
        filled = Filled(running, bus, settings())
        await filled.fill()
        await filled.make_person()
        await filled.act_on_many()
        refreshing = asyncio.create_task(filled.keep_current())
        yield filled
    finally:
        if refreshing is not None:
            refreshing.cancel()
        running.child.end(10.0)
        await bus.close()


@asynccontextmanager
async def browsing(**options: Any) -> AsyncIterator[Any]:
    """A page of a browser that remembers nothing."""
    from playwright.async_api import async_playwright

    async with async_playwright() as tools:
        browser = await tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = await browser.new_page(viewport={"width": 1280, "height": 900}, **options)
        yield page
        await browser.close()


async def log_in(page: Any, url: str) -> None:
    """Logs the person in, by keyboard."""
    await page.goto(f"{url}/login")
    # The first field has the focus of itself, but only once the page is drawn, and with script.
    await page.get_by_label("Name").press_sequentially(PERSON)
    await page.keyboard.press("Tab")
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"{url}/")


@needs_browser
@in_one_loop
async def test_every_page_is_accessible_small_quiet_and_loads_nothing_from_elsewhere(
    filled: Filled,
) -> None:
    problems: list[str] = []
    async with browsing() as page:
        await page.goto(f"{filled.running.url}/login")
        await _looks_well(page, "/login", problems)
        await log_in(page, filled.running.url)
        network = await page.context.new_cdp_session(page)
        await network.send("Network.enable")
        await network.send("Network.setCacheDisabled", {"cacheDisabled": True})
        requests: list[str] = []
        sizes: list[float] = []
        network.on("Network.loadingFinished", lambda one: sizes.append(one["encodedDataLength"]))
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: problems.extend(_unexpected(page.url, message)))
        page.on("pageerror", lambda error: problems.append(f"{page.url}: {error}"))
        for path in filled.paths:
            requests.clear()
            sizes.clear()
            await page.goto(f"{filled.running.url}{path}", wait_until="load")
            assert len(requests) <= MOST_REQUESTS, requests
            assert sum(sizes) <= MOST_BYTES, f"{path} has {sum(sizes)} bytes"
            assert {url.split("/")[2] for url in requests} == {f"127.0.0.1:{filled.running.port}"}
            await page.evaluate(_REFRESH)
            await _looks_well(page, path, problems)
        await page.goto(f"{filled.running.url}/jobs?q=state:dead")
        await page.click("button[value=retry]")  # its preview is the answer to a form
        await page.wait_for_url("**/bulk/preview")
        await _looks_well(page, "/bulk/preview", problems)
        await page.keyboard.press("Control+k")
        await _looks_well(page, "the palette", problems)
    assert problems == []


def _unexpected(where: str, message: Any) -> list[str]:
    """A message of the browser's log, unless it is that a page which is not there is not."""
    address = message.location["url"]
    is_expected = message.text == NOT_FOUND and urlsplit(address).path in MISSING_PAGES
    return [] if is_expected else [f"{where}: {message.text} ({address})"]


async def _looks_well(page: Any, path: str, problems: list[str]) -> None:
    """In both themes, wide and narrow."""
    for width, theme in LOOKS:
        await page.set_viewport_size({"width": width, "height": 900})
        await page.emulate_media(color_scheme=theme)
        await _is_accessible(page, f"{path} at {width}, {theme}", problems)
        wider = "document.documentElement.scrollWidth - innerWidth"
        assert await page.evaluate(wider) <= 0, f"{path} is wider than {width}"
        broken = await page.evaluate(BROKEN_WORDS) if width > NARROW else []
        assert broken == [], f"{path} at {width} breaks short words"
        await _picture(page, path, width, theme)


async def _picture(page: Any, path: str, width: int, theme: str) -> None:
    if SCREENSHOTS and (width, theme) == (1280, "light") and path in PICTURED:
        await page.screenshot(path=Path(SCREENSHOTS) / f"console-{PICTURED[path]}.png")
    if ALL_SCREENSHOTS:
        name = "".join(letter if letter.isalnum() else "-" for letter in path.strip("/"))
        file = Path(ALL_SCREENSHOTS) / f"{name[:50] or 'overview'}-{width}-{theme}.png"
        await page.screenshot(path=file, full_page=True)


async def _is_accessible(page: Any, where: str, problems: list[str]) -> None:
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate((VENDOR / "axe.min.js").read_text("utf-8"))
    found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    problems += [
        f"{where}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
    ]


@needs_browser
@in_one_loop
async def test_text_becomes_html_by_the_policy_alone(filled: Filled) -> None:
    """Trusted Types: what would run script or parse text in the page throws."""
    attacks = (
        "document.body.innerHTML = '<img src=x onerror=alert(1)>'",
        "document.body.insertAdjacentHTML('beforeend', '<b>x</b>')",
        "document.createElement('script').src = '/static/x.js'",
        "document.createElement('script').textContent = 'alert(1)'",
        "trustedTypes.createPolicy('other', {createHTML: (text) => text})",
    )
    async with browsing() as page:
        await page.goto(filled.running.url)
        for attack in attacks:
            tried = f"() => {{ try {{ {attack} }} catch (error) {{ return error.name }} }}"
            assert await page.evaluate(tried) == "TypeError", attack


async def press(page: Any, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def tab_to(page: Any, condition: str) -> None:
    """Presses Tab until the element with the focus fits a condition in which it is ``it``."""
    for _ in range(80):
        if await page.evaluate(f"((it) => {condition})(document.activeElement)"):
            seen = "getComputedStyle(document.activeElement).outlineStyle !== 'none'"
            assert await page.evaluate(seen), "the focus cannot be seen"
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"no element that the keyboard reaches fits {condition}")


async def shows(page: Any, text: str) -> None:
    from playwright.async_api import expect

    await expect(page.locator("main")).to_contain_text(text, timeout=PATIENCE_MS)


async def open_newest_decision(page: Any, filled: Filled) -> None:
    """From the overview, by keyboard."""
    await page.goto(filled.running.url)
    await press(page, "g", "d")
    await page.wait_for_url("**/decisions")
    await press(page, "j", "Enter")
    await page.wait_for_url(f"**/decisions/{filled.decision}")


@needs_browser
@in_one_loop
async def test_by_keyboard_alone_one_finds_out_why_not(filled: Filled) -> None:
    async with browsing() as page:
        await open_newest_decision(page, filled)
        await tab_to(page, "it.id === 'workers'")
        await press(page, "Control+A")
        await page.keyboard.type("40")
        await press(page, "Enter")
        await page.wait_for_url("**/decisions/*workers=40*")
        assert "Not 40, as " in await page.inner_text("main")


@needs_browser
@in_one_loop
async def test_by_keyboard_alone_one_steps_from_decision_to_decision(filled: Filled) -> None:
    """From the newest decision to the one after which jobs started late."""
    async with browsing() as page:
        await open_newest_decision(page, filled)
        await press(page, "[")
        await page.wait_for_url(f"**/decisions/{filled.earlier}")
        await press(page, "[")
        await shows(page, "44 wanted by burst: 1,048 jobs wait")
        await press(page, "]")
        await page.wait_for_url(f"**/decisions/{filled.earlier}")


@needs_browser
@in_one_loop
async def test_by_keyboard_alone_one_steps_back_to_a_breach(filled: Filled) -> None:
    """From the overview to what was then, on from page to page of that moment, and to now."""
    then = f"as_of={filled.moment}"
    async with browsing() as page:
        await log_in(page, filled.running.url)
        await press(page, "[")
        await page.wait_for_url(f"**/?{then}")
        await shows(page, f"{BROKEN_WAITING:,}")
        assert await page.inner_text("#not-now") == f"{filled.moment[11:19]}, not now"
        assert await page.locator("[data-act], form[method=post], #live").count() == 0
        await press(page, "g", "p")
        await page.wait_for_url("**/pools?as_of=*")
        await press(page, "j", "Enter")
        await page.wait_for_url("**/pools/reports?as_of=*")
        await shows(page, f"{BROKEN_WAITING:,}")
        await press(page, "[")
        await page.wait_for_url(lambda url: "/pools/reports?" in url and then not in url)
        await press(page, "]")
        await page.wait_for_url(f"**/pools/reports?{then}")
        await press(page, "g", "f")
        await shows(page, "This page has no past")
        problems: list[str] = []
        await _looks_well(page, "/failures, which has no past", problems)
        assert problems == []
        await press(page, "n")
        await page.wait_for_url("**/failures")
        assert await page.locator("#not-now").count() == 0


@needs_browser
@in_one_loop
async def test_by_slider_and_by_field_one_goes_to_another_time(filled: Filled) -> None:
    async with browsing() as page:
        await page.goto(f"{filled.running.url}/pools/reports?seconds=3600&as_of={filled.moment}")
        await tab_to(page, "it.id === 'time-slider'")
        await press(page, "Home")
        await page.wait_for_url(lambda url: "seconds=3600" in url and filled.moment[:19] not in url)
        await page.goto(f"{filled.running.url}/pools/reports?seconds=3600&as_of={filled.moment}")
        await tab_to(page, "it.id === 'time-slider'")
        await press(page, "End")
        await page.wait_for_url("**/pools/reports?seconds=3600")
        await page.get_by_label("as of").fill(filled.moment[:19])
        await press(page, "Enter")
        await page.wait_for_url("**/pools/reports?seconds=3600&as_of=*")


@needs_browser
@in_one_loop
async def test_by_keyboard_alone_one_acknowledges_an_alert(filled: Filled) -> None:
    async with browsing() as page:
        await log_in(page, filled.running.url)
        await press(page, "g", "a")
        await page.wait_for_url("**/alerts")
        await press(page, "j", "Enter")
        await page.wait_for_url("**/alerts/*")
        await tab_to(page, "it.textContent.trim() === 'Acknowledge'")
        await press(page, "Enter")
        await shows(page, "Acknowledged by")


@needs_browser
@in_one_loop
async def test_by_keyboard_alone_a_dead_job_is_found_and_run_again(filled: Filled) -> None:
    async with browsing() as page:
        await log_in(page, filled.running.url)
        await press(page, "g", "j")
        await page.wait_for_url("**/jobs")
        await press(page, "/")
        await page.keyboard.type("state:dead function:shop.render")
        await press(page, "Enter")
        await page.wait_for_url("**/jobs?q=**")
        await press(page, "j", "Enter")
        await page.wait_for_url("**/jobs/lost-*")
        await press(page, ".", "Enter")
        await page.wait_for_url("**/acts/job.retry/lost-*")
        await page.keyboard.type("the table is there again")
        await press(page, "Enter")
        await page.wait_for_url("**/jobs/lost-*?acted=job.retry")
        text = await page.inner_text("main")
        assert "The job is queued again." in text
        assert "waiting" in text


@needs_browser
@in_one_loop
async def test_by_keyboard_alone_212_dead_jobs_are_found_and_run_again(filled: Filled) -> None:
    async with browsing() as page:
        await log_in(page, filled.running.url)
        await press(page, "g", "f")
        await page.wait_for_url("**/failures")
        await press(page, "j", "Enter")
        await page.wait_for_url("**/failures/*")
        await press(page, ".")
        assert await page.evaluate("document.activeElement.value") == "retry"
        await press(page, "Enter")
        await shows(page, f"Run again: {DEAD} jobs")
        await page.keyboard.type("after the fix")
        await press(page, "Enter")
        await page.wait_for_url("**/bulk/*")
        await shows(page, f"{DEAD} of {DEAD}")
        await shows(page, "after the fix done")


@needs_browser
@in_one_loop
async def test_without_script_a_job_is_run_again_and_a_queue_paused(filled: Filled) -> None:
    async with browsing(java_script_enabled=False) as page:
        await log_in(page, filled.running.url)
        await page.goto(f"{filled.running.url}/jobs/lost-0")
        await page.get_by_role("link", name="Run again").click()
        await page.get_by_role("button", name="Run again").click()
        await page.wait_for_url("**/jobs/lost-0?acted=job.retry")
        await page.goto(f"{filled.running.url}/acts/queue.pause/reports")
        await page.get_by_label("Reason").fill("repair")
        await page.get_by_role("button", name="Pause").click()
        await page.wait_for_url("**/queues?acted=queue.pause")
        await page.get_by_role("link", name="Resume queue reports").click()
        await page.get_by_role("button", name="Resume").click()
        await page.wait_for_url("**/queues?acted=queue.resume")


@needs_browser
@in_one_loop
async def test_a_page_that_cannot_be_refreshed_keeps_what_it_shows_and_says_so(
    filled: Filled,
) -> None:
    async with browsing() as page:
        await page.goto(f"{filled.running.url}/jobs?q=state:running")
        before = await page.inner_text("#job-list tbody")
        await page.route("**/jobs?q=*", lambda route: route.fulfill(status=503, body="gone"))
        await page.evaluate(_REFRESH)
        await page.get_by_text("could not be refreshed").wait_for()
        assert await page.inner_text("#job-list tbody") == before
        await page.unroute("**/jobs?q=*")
        await page.evaluate(_REFRESH)
        await page.get_by_text("could not be refreshed").wait_for(state="hidden")


@needs_browser
@in_one_loop
async def test_the_palette_leads_to_any_page_and_to_whatever_has_a_name(filled: Filled) -> None:
    async with browsing() as page:
        await page.goto(filled.running.url)
        await press(page, "Control+k")
        await page.keyboard.type("alerts rules")
        await press(page, "Enter")
        await page.wait_for_url("**/alerts/rules")
        await press(page, "Control+k")
        await page.keyboard.type("novem")
        await page.get_by_role("link", name="November").wait_for()
        await press(page, "Enter")
        await page.wait_for_url("**/batches/november")
        await press(page, "Control+k", "Escape")
        assert not await page.evaluate("document.getElementById('palette').open")
        await press(page, "?")
        await page.locator("#keys[open]").wait_for()


@needs_browser
@in_one_loop
async def test_chosen_rows_stay_chosen_while_the_list_changes(filled: Filled) -> None:
    async with browsing() as page:
        await log_in(page, filled.running.url)
        await page.goto(f"{filled.running.url}/jobs?q=state:running")
        await press(page, "j", "x", "j")
        chosen = "[...document.querySelectorAll('input[name=ids]:checked')].map((one) => one.value)"
        before = await page.evaluate(chosen)
        await page.evaluate(_REFRESH)
        assert await page.evaluate(chosen) == before != []
        await tab_to(page, "it.form?.id === 'chosen' && it.value === 'cancel'")
        await press(page, "Enter")
        await shows(page, "Cancel: 1 job")


@needs_browser
@in_one_loop
async def test_a_new_token_is_copied_by_keyboard(filled: Filled) -> None:
    async with browsing() as page:
        await log_in(page, filled.running.url)
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.goto(f"{filled.running.url}/account")
        await page.get_by_label("What it is for").fill("copied")
        await page.get_by_role("button", name="Make a token").press("Enter")
        token = await page.get_by_label("The new token").input_value()
        await tab_to(page, "it.dataset.copy === 'made'")
        await press(page, "Enter")
        await shows(page, "Copied.")
        assert await page.evaluate("navigator.clipboard.readText()") == token
        assert await page.evaluate("document.activeElement.dataset.copy") == "made"


@needs_browser
@in_one_loop
async def test_the_keys_are_listed_and_the_content_is_one_key_away(filled: Filled) -> None:
    async with browsing() as page:
        await page.goto(filled.running.url)
        await press(page, "Tab")
        skips = "document.activeElement.className === 'skip'"
        assert await page.evaluate(skips)
        await press(page, "Enter")
        assert await page.evaluate("document.activeElement.id") == "main"
        await press(page, "?")
        assert await page.evaluate("document.getElementById('keys').open")
        await press(page, "Escape", "t")
        first = await page.evaluate("document.documentElement.dataset.theme")
        await press(page, "t")
        assert await page.evaluate("document.documentElement.dataset.theme") != first
