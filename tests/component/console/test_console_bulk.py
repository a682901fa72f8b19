"""Bulk actions: a fixed set, confirmed, gone through at a speed, taken over, and audited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, die, dispatch, send
from tests.waiting import eventually

from penstock.config import Settings
from penstock.console.bulk.effects import Effects
from penstock.console.web.scopes import Scope
from penstock.events.job import JobStarted
from penstock.jobs.lifecycle import State

DEAD = {"target": "jobs", "verb": "retry", "filter": "state:dead"}


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


async def dead_jobs(site: Site, ada: httpx.AsyncClient, count: int, **fields: Any) -> list[str]:
    ids = [await dispatch(ada, **fields) for _ in range(count)]
    for job_id in ids:
        await die(site, job_id)
    return ids


async def previewed(ada: httpx.AsyncClient, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = await send(ada, "POST", "/bulk/preview", body, status=200)
    return answer


async def started(ada: httpx.AsyncClient, body: dict[str, Any], **more: Any) -> dict[str, Any]:
    preview = await previewed(ada, body)
    confirmed = {**body, "confirm": preview["confirm"], "count": preview["count"], **more}
    answer: dict[str, Any] = await send(ada, "POST", "/bulk", confirmed)
    return answer


async def ended(ada: httpx.AsyncClient, action: dict[str, Any]) -> dict[str, Any]:
    async def has_ended() -> dict[str, Any] | None:
        now = (await ada.get(f"/api/v1/bulk/{action['id']}")).json()
        return now if now.get("state") in ("done", "aborted") else None

    answer: dict[str, Any] = await eventually(has_ended, 20, "the end of the action")
    return answer


async def states(site: Site, ids: list[str]) -> list[State]:
    return [(await site.console.client.job(job_id)).state for job_id in ids]


async def test_dead_jobs_are_previewed_and_retried(running: Site, ada: Any) -> None:
    ids = await dead_jobs(running, ada, 12)
    other = await dispatch(ada, queue="imports")
    preview = await previewed(ada, DEAD)
    assert preview["count"] == 12
    assert preview["groups"] == [
        {"queue": "reports", "function": "shop.load", "state": "dead", "count": 12}
    ]
    assert len(preview["examples"]) == 10
    assert preview["examples"][0]["error"] == "builtins.ValueError: no"
    action = await started(ada, DEAD, title="after the fix", reason="fixed")
    end = await ended(ada, action)
    assert (end["state"], end["done"], end["refused"], end["changed"]) == ("done", 12, 0, 0)
    assert set(await states(running, [*ids, other])) == {State.WAITING}
    assert (await ada.get("/api/v1/dead")).json()["items"] == []
    [event] = (await ada.get(f"/api/v1/events?noun=job&key={ids[0]}&limit=1")).json()["items"]
    assert (event["name"], event["event"]["reason"]) == ("JobRevived", "fixed")
    assert event["event"]["source"] == f"console/ada/{action['id']}"
    [listed] = (await ada.get("/api/v1/bulk")).json()["items"]
    assert (listed["title"], listed["by"]) == ("after the fix", "ada")


async def test_who_started_an_action_and_how_it_ended_stand_in_the_audit_log(
    running: Site, ada: Any
) -> None:
    await dead_jobs(running, ada, 2)
    action = await started(ada, DEAD)
    await ended(ada, action)
    audit = running.console.control.audit

    async def recorded() -> Any:
        page, _ = await audit.newest(20, 0, lambda one: one.action == "bulk.end")
        return page

    [end] = await eventually(recorded, 10, "the entry")
    assert (end.actor, end.result, end.target) == ("ada", "done", f"bulk:{action['id']}")
    assert end.after == {"verb": "retry jobs", "done": "2", "refused": "0", "total": "2"}
    starts, _ = await audit.newest(20, 0, lambda one: one.action == "bulk.start")
    assert [(one.actor, one.result) for one in starts] == [("ada", "done"), ("ada", "begun")]
    assert starts[0].after["filter"] == "state:dead"


async def test_what_comes_after_the_preview_is_not_acted_on(running: Site, ada: Any) -> None:
    [first] = await dead_jobs(running, ada, 1)
    preview = await previewed(ada, DEAD)
    [late] = await dead_jobs(running, ada, 1)
    body = {**DEAD, "confirm": preview["confirm"], "count": 1}
    end = await ended(ada, await send(ada, "POST", "/bulk", body))
    assert end["done"] == 1
    assert await states(running, [first, late]) == [State.WAITING, State.DEAD]


async def test_a_start_needs_the_confirmation_of_its_own_preview(running: Site, ada: Any) -> None:
    await dead_jobs(running, ada, 2)
    preview = await previewed(ada, DEAD)
    good = {**DEAD, "confirm": preview["confirm"], "count": 2}
    wrong = [
        {**good, "count": 3},
        {**good, "confirm": preview["confirm"][:-4] + "AAAA"},
        {**good, "confirm": ""},
        {**good, "verb": "delete"},
        {**good, "filter": "state:dead queue:reports"},
    ]
    for body in wrong:
        await send(ada, "POST", "/bulk", body, status=409)
    bob = running.caller(Person(name="bob"))
    assert (await bob.post("/api/v1/bulk", json=good)).status_code == 409
    assert (await ada.get("/api/v1/bulk")).json()["items"] == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"verb": "retry"}, "either a filter or ids"),
        ({"verb": "retry", "filter": "  "}, "either a filter or ids"),
        ({"verb": "retry", "filter": "state:running"}, "retry is for dead, cancelled"),
        ({"verb": "pause", "filter": "state:dead"}, "expected one of cancel"),
        ({"verb": "cancel", "target": "batches", "filter": "queue:reports"}, "by their state"),
        ({"verb": "cancel", "target": "graphs", "filter": "state:dead"}, "cancel is for running"),
        ({"verb": "cancel", "filter": "x", "ids": ["a"]}, "either a filter or ids"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    running: Site, ada: Any, body: dict[str, Any], expected: str
) -> None:
    answer = await ada.post("/api/v1/bulk/preview", json=body)
    assert (answer.status_code, expected in answer.text) == (400, True), answer.text


async def test_jobs_are_cancelled_in_whatever_state_they_are_alive(running: Site, ada: Any) -> None:
    waiting, runs, other = [await dispatch(ada) for _ in range(2)], await dispatch(ada), ""
    await running.store(JobStarted(job_id=runs, queue="reports", attempt=1, host="h", worker="w"))
    other = await dispatch(ada, queue="imports")
    action = await started(ada, {"verb": "cancel", "filter": "queue:reports"})
    assert (await ended(ada, action))["done"] == 3
    assert set(await states(running, [*waiting, runs])) == {State.CANCELLED}
    assert await states(running, [other]) == [State.WAITING]


async def test_a_job_that_starts_meanwhile_is_left_where_the_filter_says_waiting(
    running: Site, ada: Any
) -> None:
    body = {"verb": "cancel", "filter": "state:waiting"}
    ids = [await dispatch(ada) for _ in range(2)]
    preview = await previewed(ada, body)
    started_job = JobStarted(job_id=ids[0], queue="reports", attempt=1, host="h", worker="w")
    await running.store(started_job)
    confirmed = {**body, "confirm": preview["confirm"], "count": 2}
    end = await ended(ada, await send(ada, "POST", "/bulk", confirmed))
    assert (end["total"], end["done"]) == (1, 1)
    assert await states(running, ids) == [State.RUNNING, State.CANCELLED]


async def test_a_job_that_was_moved_meanwhile_is_left_and_the_reason_is_counted(
    running: Site, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The console's rows are behind: the job's own events decide."""
    body = {"verb": "cancel", "filter": "queue:reports"}
    job_id = await dispatch(ada)
    act = Effects.act

    async def moved_before(self: Effects, keys: Any) -> Any:
        async for _ in running.console.client.bulk.move("reports", "imports"):
            pass
        return await act(self, keys)

    monkeypatch.setattr(Effects, "act", moved_before)
    end = await ended(ada, await started(ada, body))
    assert (end["done"], end["refused"]) == (0, 1)
    assert end["reasons"] == {"it has changed since the preview: it is on queue imports": 1}
    assert [one["id"] for one in end["refusals"]] == [job_id]
    assert await states(running, [job_id]) == [State.WAITING]


async def test_dead_letters_are_deleted_and_the_jobs_stay_dead(running: Site, ada: Any) -> None:
    ids = await dead_jobs(running, ada, 3)
    action = await started(ada, {"verb": "delete", "ids": ids[:2]})
    assert (await ended(ada, action))["done"] == 2
    assert await running.console.client.dead.count() == 1
    assert set(await states(running, ids)) == {State.DEAD}


async def test_batches_are_cancelled_by_their_state(running: Site, ada: Any) -> None:
    calls = [{"function": "shop.load", "queue": "reports"}]
    for name in ("b1", "b2"):
        await send(ada, "POST", "/batches", {"calls": calls, "id": name})
    body = {"target": "batches", "verb": "cancel", "filter": "state:running"}
    preview = await previewed(ada, body)
    assert preview["count"] == 2
    assert (await ended(ada, await started(ada, body)))["done"] == 2
    record = await running.console.client.batches.show("b1")
    assert record.state.value in ("stopping", "cancelled")


async def test_refusals_are_counted_by_their_reasons(running: Site, ada: Any) -> None:
    calls = [{"function": "shop.load", "queue": "reports"}]
    for name in ("b1", "b2"):
        await send(ada, "POST", "/batches", {"calls": calls, "id": name})
    await send(ada, "POST", "/batches/b1/cancel")
    body = {"target": "batches", "verb": "retry-failed", "ids": ["b1", "b2"]}
    answer = await ada.post("/api/v1/bulk/preview", json=body)
    assert answer.json()["count"] == 0
    await send(ada, "POST", "/bulk", {**body, "confirm": answer.json()["confirm"], "count": 0}, 409)


async def test_an_action_is_paused_resumed_and_aborted(
    running: Site, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await dead_jobs(running, ada, 6)
    action = await started(ada, DEAD, per_second=1)
    path = f"/bulk/{action['id']}"
    paused = await send(ada, "POST", f"{path}/pause")
    assert paused["state"] == "paused"
    resumed = await send(ada, "POST", f"{path}/resume", {"per_second": 2})
    assert (resumed["state"], resumed["per_second"]) == ("running", 2)
    aborted = await send(ada, "POST", f"{path}/abort")
    assert (aborted["state"], aborted["ended_by"]) == ("aborted", "ada")
    await send(ada, "POST", f"{path}/abort", status=409)
    await send(ada, "POST", f"{path}/resume", status=409)
    await send(ada, "POST", "/bulk/gone/abort", status=404)
    assert State.DEAD in await states(running, ids)


async def test_progress_is_streamed_until_the_end(running: Site, ada: Any) -> None:
    await dead_jobs(running, ada, 3)
    action = await started(ada, DEAD)
    async with ada.stream("GET", f"/api/v1/bulk/{action['id']}/stream") as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join([part async for part in answer.aiter_text()])
    assert text.count("event: bulk") >= 2
    assert '"state":"done"' in text.rsplit("event: bulk", 1)[1]


async def test_another_console_goes_on_and_counts_what_was_done(
    running: Site, ada: Any, monkeypatch: pytest.MonkeyPatch, settings: Settings, tmp_path: Path
) -> None:
    """The first one is killed after it acted, before it stored how far it was."""
    ids = await dead_jobs(running, ada, 5)
    acted = asyncio.Event()
    act = Effects.act

    async def killed(self: Effects, keys: Any) -> Any:
        await act(self, keys)
        acted.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(Effects, "act", killed)
        action = await started(ada, DEAD)
        await asyncio.wait_for(acted.wait(), 10)
        await running.end_tasks()
    assert State.WAITING in await states(running, ids)
    second = Site(running.bus, settings, tmp_path / "second")
    second.start()
    second.spawn(second.console.bulk.run)
    try:
        bob = second.caller(Person())
        end = await ended(bob, action)
        assert (end["done"], end["refused"], end["changed"]) == (5, 0, 0)
        assert set(await states(second, ids)) == {State.WAITING}
        revived = [await second.console.client.job(job_id) for job_id in ids]
        assert {view.record.life for view in revived} == {2}
    finally:
        await second.stop()


async def test_a_token_for_one_queue_acts_on_its_jobs_alone(running: Site) -> None:
    guarded = Guarded(running)
    everything = running.caller(Person())
    own = await dead_jobs(running, everything, 2)
    other = await dispatch(everything, queue="imports")
    limited = await guarded.bearer("read", "jobs", queues=("reports",))
    action = await started(limited, {"verb": "retry", "filter": "state:dead"})
    assert (await ended(everything, action))["done"] == 2
    assert set(await states(running, own)) == {State.WAITING}
    cancelled = await started(limited, {"verb": "cancel", "ids": [*own, other]})
    assert cancelled["total"] == 2
    await ended(everything, cancelled)
    assert await states(running, [other]) == [State.WAITING]
    graphs = {"target": "graphs", "verb": "cancel", "filter": "state:running"}
    assert (await limited.post("/api/v1/bulk/preview", json=graphs)).status_code == 403
    theirs = await started(everything, {"verb": "cancel", "ids": [other]}, per_second=1)
    answer = await limited.post(f"/api/v1/bulk/{theirs['id']}/abort", json={})
    assert answer.status_code == 403


async def test_a_reader_may_not_even_preview(running: Site) -> None:
    reader = running.caller(Person(Scope.READ))
    assert (await reader.post("/api/v1/bulk/preview", json=DEAD)).status_code == 403
