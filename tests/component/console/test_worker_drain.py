"""A worker is drained by the API and from its page, with an entry in the audit log."""

from __future__ import annotations

import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, send
from tests.component.console.test_page_acts import browser, confirm

from penstock.console.web.scopes import Scope
from penstock.events.draining import DrainAnswered, DrainAsked, DrainOutcome
from penstock.operations import draining
from penstock.views.live_workers import WorkerRow

WORKER = WorkerRow(
    worker="h1-a-1",
    pool="reports",
    host="h1",
    pid=7,
    state="busy",
    lived_seconds=1.0,
    cpu_seconds=1.0,
    memory_bytes=1,
)


class Executor:
    """Answers requests as the executor of a host does."""

    def __init__(self, site: Site) -> None:
        self._site, self.asked = site, list[DrainAsked]()
        self.outcome: DrainOutcome = "draining"

    async def open(self) -> None:
        await self._site.bus.listen(self._site.subjects.drain_asked("h1"), self._answer)

    async def _answer(self, _: str, body: bytes) -> None:
        asked = msgspec.json.decode(body, type=DrainAsked)
        self.asked.append(asked)
        answer = DrainAnswered(host="h1", worker=asked.worker, outcome=self.outcome)
        subject = self._site.subjects.drain_answered(asked.answer_to)
        await self._site.bus.signal(subject, msgspec.json.encode(answer))


@pytest.fixture
async def executor(site: Site, monkeypatch: pytest.MonkeyPatch) -> Executor:
    monkeypatch.setattr(site.console.present, "worker_rows", lambda: [WORKER])
    executor = Executor(site)
    await executor.open()
    return executor


async def test_a_worker_is_drained_by_the_api(site: Site, executor: Executor) -> None:
    ada = await Guarded(site).bearer("read", "queues")
    answer = await ada.post("/api/v1/workers/h1-a-1/drain", json={"reason": "too large"})
    assert answer.status_code == 202, answer.text
    [asked] = executor.asked
    assert (asked.worker, asked.reason, asked.by.partition("/")[0]) == (
        "h1-a-1",
        "too large",
        "console",
    )
    entries, _ = await site.console.control.audit.newest(10)
    results = {entry.result for entry in entries if entry.action == "worker.drain"}
    assert results == {"begun", "done"}
    [begun] = [entry for entry in entries if entry.result == "begun"]
    assert begun.target == "worker:h1-a-1" or entries[0].target == "worker:h1-a-1"


async def test_who_may_not_act_on_queues_drains_nothing(site: Site, executor: Executor) -> None:
    reader = site.caller(Person(Scope.READ, Scope.JOBS))
    await send(reader, "POST", "/workers/h1-a-1/drain", status=403)
    assert executor.asked == []


async def test_what_the_executor_answers_is_passed_on(
    site: Site, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = site.caller(Person())
    executor.outcome = "already"
    await send(ada, "POST", "/workers/h1-a-1/drain")
    executor.outcome = "unknown"
    await send(ada, "POST", "/workers/h1-a-1/drain", status=409)
    await send(ada, "POST", "/workers/gone/drain", status=404)
    monkeypatch.setattr(draining, "PATIENCE_SECONDS", 0.05)
    away = msgspec.structs.replace(WORKER, host="h2")
    monkeypatch.setattr(site.console.present, "worker_rows", lambda: [away])
    await send(ada, "POST", "/workers/h1-a-1/drain", status=503)


async def test_it_is_offered_on_the_worker_s_page(
    site: Site, executor: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await browser(site)
    path = "/acts/worker.drain/h1-a-1"
    assert path in (await client.get("/capacity/workers/h1-a-1")).text
    answer = await confirm(client, path, reason="too large")
    assert answer.headers["location"] == "/capacity/workers/h1-a-1?acted=worker.drain"
    assert len(executor.asked) == 1
    draining_row = msgspec.structs.replace(WORKER, state="draining")
    monkeypatch.setattr(site.console.present, "worker_rows", lambda: [draining_row])
    page = (await client.get(answer.headers["location"])).text
    assert path not in page
    assert "being drained" in page
