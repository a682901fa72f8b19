"""What a job wrote, by the API and on its page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from tests.component.console.conftest import Site
from tests.component.console.test_api_acting import Person
from tests.component.console.test_console_api import dispatched
from tests.component.console.test_page_acts import browser

from penstock.bus.protocol import Outgoing
from penstock.console.web.scopes import Scope
from penstock.events.log_lines import LogChunk, LogLine


async def wrote(site: Site, job_id: str, number: int, *texts: str) -> None:
    lines = tuple(LogLine(at=datetime.now(UTC), text=text, logger="shop") for text in texts)
    about: dict[str, Any] = {
        "function": "shop.load",
        "queue": "reports",
        "worker": "w1",
        "host": "h1",
    }
    about |= {"host": "h1", "number": number, "lines": lines}
    chunk = LogChunk(job_id=job_id, attempt=1, **about)
    subject = site.subjects.log_lines(job_id)
    await site.bus.append(Outgoing(subject, msgspec.json.encode(chunk)))


async def test_logs_are_read_newest_last_and_go_on_from_a_cursor(site: Site) -> None:
    reader = site.caller(Person(Scope.READ, Scope.PAYLOAD))
    await site.store(dispatched(1))
    for number in range(3):
        await wrote(site, "job-001", number, f"a{number}", f"b{number}")
    newest = (await reader.get("/api/v1/jobs/job-001/logs?limit=3")).json()
    assert [line["text"] for line in newest["items"]] == ["b1", "a2", "b2"]
    assert (newest["left_out"], newest["complete"]) == (3, True)
    texts, where = [], "from_start=true"
    while True:
        page = (await reader.get(f"/api/v1/jobs/job-001/logs?limit=3&{where}")).json()
        texts += [line["text"] for line in page["items"]]
        where = f"cursor={page['next']}"
        if page["complete"]:
            break
    assert texts == ["a0", "b0", "a1", "b1", "a2", "b2"]
    await wrote(site, "job-001", 3, "c")
    [line] = (await reader.get(f"/api/v1/jobs/job-001/logs?{where}")).json()["items"]
    assert line["text"] == "c"
    assert (await reader.get("/api/v1/jobs/job-002/logs")).status_code == 404


async def test_logs_need_the_scope_of_payloads_and_each_look_is_recorded(site: Site) -> None:
    await site.store(dispatched(1))
    await wrote(site, "job-001", 0, "<b>bold</b>")
    for path in ("/api/v1/jobs/job-001/logs", "/jobs/job-001/logs"):
        assert (await site.client.get(path)).status_code == 403
    operator = await browser(site)
    text = (await operator.get("/jobs/job-001/logs")).text
    assert "&lt;b&gt;bold&lt;/b&gt;" in text
    entries, _ = await site.console.control.audit.newest(10)
    looks = [(entry.actor, entry.result) for entry in entries if entry.action == "logs.view"]
    assert looks[0] == ("ada", "shown")
    assert all(result != "shown" for _, result in looks[1:])


async def test_the_page_of_a_job_leads_to_its_payload_and_log_or_says_who_may(site: Site) -> None:
    await site.store(dispatched(1))
    text = (await site.client.get("/jobs/job-001")).text
    assert "the scope payload: roles operator and admin" in text
    operator = await browser(site)
    text = (await operator.get("/jobs/job-001")).text
    for part in ("payload", "logs"):
        assert f'href="/jobs/job-001/{part}"' in text
