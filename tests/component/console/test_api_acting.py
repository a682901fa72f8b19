"""Endpoints that act: their effect, once for each key, by whom, and not with a reader's key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from litestar.exceptions import TooManyRequestsException
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import dispatched

from penstock.bus.access import NotPermitted
from penstock.bus.protocol import Outgoing
from penstock.console.web import once
from penstock.console.web.credentials import Principal
from penstock.console.web.rate_limits import ACTS_PER_MINUTE, RateLimits
from penstock.console.web.scopes import Scope
from penstock.events.job import JobDead, JobError, JobFailed, JobStarted
from penstock.events.queue import QueuePaused
from penstock.jobs.lifecycle import State
from penstock.jobs.queues import queue_messages
from penstock.operations.orders import read_orders

EVERY_SCOPE = frozenset(Scope)


class Person:
    """Lets one person in with some scopes."""

    def __init__(self, *scopes: Scope, name: str = "ada") -> None:
        self._scopes, self._name = frozenset(scopes) or EVERY_SCOPE, name

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        del headers
        return Principal(name=self._name, scopes=self._scopes, kind="token")


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


async def send(
    ada: httpx.AsyncClient, method: str, path: str, body: Any = None, status: int = 202, **kw: Any
) -> Any:
    body = {} if body is None and method == "POST" else body
    answer = await ada.request(method, f"/api/v1{path}", json=body, **kw)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


async def dispatch(ada: httpx.AsyncClient, **fields: Any) -> str:
    job = {"function": "shop.load", "queue": "reports", **fields}
    return str((await send(ada, "POST", "/jobs", job))["id"])


async def die(site: Site, job_id: str) -> None:
    """What a worker stores of a job that fails for good."""
    error = JobError(kind="builtins.ValueError", message="no")
    about: dict[str, Any] = {"job_id": job_id, "queue": "reports", "attempt": 1}
    await site.store(
        JobStarted(**about, host="h", worker="w"),
        JobFailed(**about, error=error),
        JobDead(**about, error=error, function="shop.load"),
    )
    record = (await site.console.client.job(job_id)).record
    await site.bus.append(queue_messages.dead_letter(site.subjects, record, {}))


async def test_a_job_is_dispatched_cancelled_and_retried(site: Site, ada: Any) -> None:
    job_id = await dispatch(ada, arguments={"table": "orders"}, tags=["nightly"])
    view = await site.console.client.job(job_id)
    assert (view.state, view.record.tags) == (State.WAITING, ("nightly",))
    receipt = await send(ada, "POST", f"/jobs/{job_id}/cancel", {"reason": "a mistake"})
    assert receipt["events"] == f"/api/v1/events?noun=job&key={job_id}"
    assert (await site.console.client.job(job_id)).state is State.CANCELLED
    [event] = (await ada.get(f"{receipt['events']}&limit=1")).json()["items"]
    assert (event["name"], event["event"]["source"]) == ("JobCancelled", "console/ada")
    await send(ada, "POST", f"/jobs/{job_id}/retry")
    listed = (await ada.get("/api/v1/jobs")).json()["items"]
    assert [(job["id"], job["state"]) for job in listed] == [(job_id, "waiting")], "own writes"
    await send(ada, "POST", f"/jobs/{job_id}/retry", status=409)
    await send(ada, "POST", "/jobs/gone/cancel", status=404)


async def test_fifty_equal_requests_with_one_key_have_one_effect(site: Site, ada: Any) -> None:
    job = {"function": "shop.load", "queue": "reports"}
    headers = {"Idempotency-Key": "k1"}
    answers = await asyncio.gather(
        *(ada.post("/api/v1/jobs", json=job, headers=headers) for _ in range(50))
    )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" in answer.headers for answer in answers) == 49
    assert len((await ada.get("/api/v1/jobs")).json()["items"]) == 1
    other = await ada.post("/api/v1/jobs", json={**job, "queue": "imports"}, headers=headers)
    assert other.status_code == 422


async def test_a_request_that_failed_runs_again_with_its_key(site: Site, ada: Any) -> None:
    headers = {"Idempotency-Key": "k1"}
    await send(ada, "POST", "/jobs/job-001/cancel", status=404, headers=headers)
    await site.store(dispatched(1))
    await send(ada, "POST", "/jobs/job-001/cancel", headers=headers)
    assert (await site.console.client.job("job-001")).state is State.CANCELLED


async def test_a_request_whose_console_was_killed_is_taken_over(
    site: Site, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    async def killed(*_: Any) -> None:
        raise Killed

    await site.store(dispatched(1))
    headers = {"Idempotency-Key": "k1"}
    with monkeypatch.context() as patch:
        patch.setattr(once.ActingRequests, "_finish", killed)
        with pytest.raises(Killed):
            await send(ada, "POST", "/jobs/job-001/cancel", headers=headers)
    monkeypatch.setattr(once, "_PATIENCE_SECONDS", 0.0)
    waiting = await ada.post("/api/v1/jobs/job-001/cancel", json={}, headers=headers)
    assert (waiting.status_code, waiting.headers["retry-after"]) == (409, "5")
    monkeypatch.setattr(once, "TAKEN_OVER_SECONDS", 0.0)
    await send(ada, "POST", "/jobs/job-001/cancel", headers=headers)


async def test_requests_that_act_are_limited_by_the_minute(ada: Any, site: Site) -> None:
    answer = await ada.post("/api/v1/jobs/gone/cancel", json={})
    assert int(answer.headers["ratelimit-remaining"]) == ACTS_PER_MINUTE - 1
    limits = RateLimits(per_minute=1)
    assert limits.take("ada")["RateLimit-Remaining"] == "0"
    with pytest.raises(TooManyRequestsException, match="1 requests"):
        limits.take("ada")
    assert limits.take("bob")["RateLimit-Limit"] == "1"


async def test_a_caller_without_the_scope_changes_nothing(site: Site) -> None:
    await site.store(dispatched(1))
    reader = site.caller(Person(Scope.READ))
    await send(reader, "POST", "/jobs/job-001/cancel", status=403)
    await send(reader, "PUT", "/pools/reports/hold", {"until": "2027-01-01T00:00:00Z"}, status=403)
    assert (await site.console.client.job("job-001")).state is State.WAITING


async def test_a_readers_key_changes_nothing_whatever_the_scopes(
    site: Site, ada: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The role console-reader may store its audit log and nothing else."""
    await site.store(dispatched(1))
    append = site.bus.append

    async def of_reader(message: Outgoing) -> int:
        if ".console.audit." not in message.subject:
            raise NotPermitted(f"this key may not publish to {message.subject}")
        return await append(message)

    monkeypatch.setattr(site.bus, "append", of_reader)
    refused = await send(ada, "POST", "/jobs/job-001/cancel", status=403)
    assert "console-reader" in refused["detail"]
    assert (await site.console.client.job("job-001")).state is State.WAITING


async def test_every_act_stands_in_the_audit_log_with_the_person(site: Site, ada: Any) -> None:
    await site.store(dispatched(1))
    await send(ada, "POST", "/jobs/job-001/cancel", {"reason": "a mistake"})
    [done, begun] = (await ada.get("/api/v1/audit?limit=2")).json()["items"]
    assert (begun["action"], begun["result"], begun["actor"]) == ("job.cancel", "begun", "ada")
    assert (done["target"], done["result"], done["of"]) == ("job:job-001", "done", begun["number"])
    assert done["after"] == {"reason": "a mistake"}


async def test_dead_jobs_are_retried_and_their_letters_deleted(site: Site, ada: Any) -> None:
    for job_id, path in (("a", "/dead/a/retry"), ("b", "/jobs/b/retry")):
        await dispatch(ada, id=job_id)
        await die(site, job_id)
        await send(ada, "POST", path, {"reason": "mended"})
        assert (await site.console.client.job(job_id)).state is State.WAITING
        assert (await ada.get("/api/v1/dead")).json()["items"] == []
    await dispatch(ada, id="c")
    await die(site, "c")
    await send(ada, "DELETE", "/dead/c")
    await send(ada, "DELETE", "/dead/c", status=404)
    assert (await ada.get("/api/v1/dead/c")).json()["job"]["state"] == "dead", "it stays dead"
    await send(ada, "POST", "/dead/gone/retry", status=404)
    await send(ada, "DELETE", "/dead/gone", status=404)


async def test_stuck_jobs_are_recovered_by_their_hosts(ada: Any) -> None:
    for path in ("/stuck/job-001/recover", "/jobs/job-001/recover", "/recover"):
        assert (await send(ada, "POST", path, {"dry_run": True}))["items"] == []
    await send(ada, "POST", "/recover", {"strategy": "odd"}, status=400)


async def test_queues_are_paused_with_a_reason_and_resumed(ada: Any) -> None:
    await send(ada, "POST", "/queues/reports/pause", {"reason": "a repair"})
    [pause] = (await ada.get("/api/v1/queues/pauses")).json()["items"]
    assert (pause["reason"], pause["by"]) == ("a repair", "console/ada")
    await send(ada, "POST", "/queues/reports/resume")
    assert (await ada.get("/api/v1/queues/pauses")).json()["items"] == []
    await send(ada, "POST", "/queues/reports/pause", {}, status=400)


async def test_a_pause_with_an_end_is_shown_and_ends_by_itself(site: Site, ada: Any) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    order = {"reason": "month end", "until": end.isoformat()}
    await send(ada, "POST", "/queues/reports/pause", order)
    [pause] = (await ada.get("/api/v1/queues/pauses")).json()["items"]
    assert datetime.fromisoformat(pause["until"]) == end
    shown = (await ada.get("/api/v1/queues/reports")).json()
    assert datetime.fromisoformat(shown["paused_until"]) == end
    assert f'datetime="{end.isoformat()}"' in (await ada.get("/queues/reports")).text

    await site.store(QueuePaused(queue="reports", until=datetime.now(UTC) - timedelta(seconds=1)))
    shown = (await ada.get("/api/v1/queues/reports")).json()
    assert (shown["paused_since"], shown["paused_until"]) == (None, None)


@pytest.mark.parametrize(
    ("until", "sentence"),
    [
        (timedelta(seconds=-1), "a pause ends in the future"),
        (timedelta(days=31), "a pause ends within 30 days"),
    ],
)
async def test_an_end_that_cannot_be_is_refused(ada: Any, until: timedelta, sentence: str) -> None:
    order = {"reason": "r", "until": (datetime.now(UTC) + until).isoformat()}
    refusal = await send(ada, "POST", "/queues/reports/pause", order, status=400)
    assert sentence in refusal["detail"]
    assert (await ada.get("/api/v1/queues/pauses")).json()["items"] == []


async def test_a_pool_is_held_until_a_time_and_released(site: Site, ada: Any) -> None:
    until = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    await send(ada, "PUT", "/pools/reports/hold", {"until": until, "at_least": 3, "reason": "sale"})
    hold = (await read_orders(site.bus, site.subjects)).holds["reports"]
    assert (hold.at_least, hold.reason, hold.by) == (3, "sale", "console/ada")
    await send(ada, "DELETE", "/pools/reports/hold")
    assert not (await read_orders(site.bus, site.subjects)).holds
    for wrong in (
        {"until": until},
        {"until": "2020-01-01T00:00:00Z", "at_least": 1},
        {"until": until, "at_least": 2, "at_most": 1},
        {"until": "9999-12-31T23:59:59-12:00", "at_least": 1},
    ):
        await send(ada, "PUT", "/pools/reports/hold", wrong, status=400)
    await send(ada, "PUT", "/pools/gone/hold", {"until": until, "at_least": 1}, status=404)


async def test_batches_from_json(site: Site, ada: Any) -> None:
    call = {"function": "shop.load", "queue": "reports"}
    batch = (await send(ada, "POST", "/batches", {"calls": [call, call], "title": "two"}))["id"]
    assert (await ada.get(f"/api/v1/batches/{batch}")).json()["title"] == "two"
    await send(ada, "POST", f"/batches/{batch}/cancel")
    assert (await site.console.client.batches.show(batch)).state != "open"
    await send(ada, "POST", f"/batches/{batch}/retry-failed", status=409)
    await send(ada, "POST", "/batches/gone/cancel", status=404)


async def test_graphs_from_json_are_paused_resumed_signalled_and_cancelled(
    site: Site, ada: Any
) -> None:
    steps = [
        {"name": "load", "function": "shop.load"},
        {"name": "approved", "wait": {}, "needs": ["load"]},
    ]
    definition = {"name": "nightly", "queue": "reports", "steps": steps}
    graph = (await send(ada, "POST", "/graphs", {"definition": definition}))["id"]
    await send(ada, "POST", f"/graphs/{graph}/pause", {"reason": "wait"})
    assert (await ada.get("/api/v1/graphs")).json()["items"][0]["is_paused"] is True
    await send(ada, "POST", f"/graphs/{graph}/resume")
    await send(ada, "POST", f"/graphs/{graph}/signal", {"name": "approved", "value": True})
    await send(ada, "POST", f"/graphs/{graph}/signal", {"name": "odd"}, status=409)
    await send(ada, "POST", f"/graphs/{graph}/retry-failed", status=409)
    await send(ada, "POST", f"/graphs/{graph}/cancel")
    assert (await site.console.client.graphs.show(graph)).reason == "by the console"
    await send(ada, "POST", "/graphs", {"definition": {"name": "x", "steps": [{}]}}, status=400)


async def test_workflows_are_run_paused_signalled_and_cancelled(site: Site, ada: Any) -> None:
    await send(ada, "POST", "/workflows/run", {"definition": "gone"}, status=404)
    await site.store(dispatched(1, kind="workflow"))
    await send(ada, "POST", "/workflows/job-001/pause", {"reason": "wait"})
    await send(ada, "POST", "/workflows/job-001/resume")
    await send(ada, "POST", "/workflows/job-001/signal", {"name": "approved", "value": 1})
    await send(ada, "POST", "/workflows/job-001/cancel")
    assert (await site.console.client.job("job-001")).state is State.CANCELLED


async def test_schedules_are_stored_paused_run_and_removed(site: Site, ada: Any) -> None:
    nightly = {"cron": "0 1 * * *", "function": "shop.load", "queue": "reports"}
    await send(ada, "PUT", "/schedules/nightly", nightly)
    assert (await send(ada, "POST", "/schedules/nightly/pause"))["next_tick"] is None
    assert (await send(ada, "POST", "/schedules/nightly/resume"))["is_paused"] is False
    job_id = (await send(ada, "POST", "/schedules/nightly/run-now"))["id"]
    assert (await site.console.client.job(job_id)).record.function == "shop.load"
    await send(ada, "DELETE", "/schedules/nightly")
    assert (await ada.get("/api/v1/schedules")).json()["items"] == []
    await send(ada, "PUT", "/schedules/nightly", {**nightly, "cron": "odd"}, status=400)


async def test_arguments_need_a_scope_of_their_own_and_each_view_is_recorded(
    site: Site, ada: Any
) -> None:
    job_id = await dispatch(ada, arguments={"table": "orders", "password": "hunter2"})
    path = f"/jobs/{job_id}/payload"
    await send(site.caller(Person(Scope.READ)), "GET", path, status=403)
    payload = await send(ada, "GET", path, status=200)
    assert (payload["arguments"]["table"], "hunter2" in str(payload)) == ("orders", False)
    entries = (await ada.get("/api/v1/audit?limit=5")).json()["items"]
    assert "payload.view" in {entry["action"] for entry in entries}


async def test_a_body_may_be_left_out_where_nothing_in_it_is_required(site: Site, ada: Any) -> None:
    job_id = await dispatch(ada)
    answer = await ada.post(f"/api/v1/jobs/{job_id}/cancel")
    assert answer.status_code == 202, answer.text
    again = await dispatch(ada)
    keyed = await ada.post(f"/api/v1/jobs/{again}/cancel", headers={"Idempotency-Key": "k1"})
    assert keyed.status_code == 202, keyed.text
    needed = await ada.post("/api/v1/queues/reports/pause")
    assert (needed.status_code, needed.json()["detail"]) == (400, "a JSON body is needed")
    assert "`reason`" in needed.json()["errors"][0]["detail"]


async def test_a_queue_that_is_not_there_is_neither_paused_nor_resumed(
    site: Site, ada: Any
) -> None:
    wrong = await send(ada, "POST", "/queues/report/pause", {"reason": "x"}, 404)
    assert "did you mean 'reports'?" in wrong["detail"]
    await send(ada, "POST", "/queues/report/resume", status=404)
    await site.store(dispatched(1, queue="unserved"))  # jobs wait there, so it is known
    await send(ada, "POST", "/queues/unserved/pause", {"reason": "x"})
    await send(ada, "POST", "/queues/reports/pause", {"reason": "x"})
