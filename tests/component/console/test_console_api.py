"""The API over a console whose events and snapshots lie in the bus in memory."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.component.console.conftest import Site
from tests.waiting import eventually

from penstock.events.job import (
    JobDead,
    JobDispatched,
    JobError,
    JobFailed,
    JobStarted,
)
from penstock.events.queue import QueuePaused
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.snapshot import Budget, HostSnapshot, PoolSnapshot, PoolWorkers

NOW = datetime.now(UTC)


def dispatched(number: int, **fields: Any) -> JobDispatched:
    known = {"queue": "reports", "function": "shop.rebuild", "payload": b"secret"}
    at = NOW - timedelta(seconds=100 - number)
    return JobDispatched(**{**known, "job_id": f"job-{number:03}", "at": at, **fields})


def died(number: int, message: str) -> list[Any]:
    error = JobError(kind="builtins.TimeoutError", message=message)
    about = {"job_id": f"job-{number:03}", "queue": "reports", "attempt": 1}
    return [
        JobStarted(**about, host="h1", worker="w1"),
        JobFailed(**about, error=error),
        JobDead(**about, error=error, function="shop.rebuild"),
    ]


async def get(site: Site, path: str, status: int = 200) -> Any:
    answer = await site.client.get(f"/api/v1{path}")
    assert answer.status_code == status, answer.text
    return answer.json()


async def ids(site: Site, query: str) -> list[str]:
    return [job["id"] for job in (await get(site, f"/jobs?{query}"))["items"]]


async def test_jobs_are_found_by_any_filter(site: Site) -> None:
    await site.store(
        dispatched(1),
        *died(1, "orders timed out"),
        dispatched(2, queue="imports", function="shop.load", tags=("nightly",)),
        dispatched(3, queue="imports--high"),
    )
    assert await ids(site, "") == ["job-003", "job-002", "job-001"]
    assert await ids(site, "state=dead") == ["job-001"]
    assert await ids(site, "queue=imports") == ["job-003", "job-002"]
    assert await ids(site, "q=state:waiting%20tag:nightly") == ["job-002"]
    assert await ids(site, "q=err:%22TIMED%20out%22") == ["job-001"]
    assert await ids(site, "q=host:h1") == ["job-001"]
    assert await ids(site, "q=load") == ["job-002"]
    assert (await get(site, "/jobs/stats"))["dead"] == 1


async def test_a_walk_by_cursor_shows_each_job_once_while_jobs_are_added(site: Site) -> None:
    await site.store(*(dispatched(number) for number in range(20)))
    seen: list[str] = []
    cursor = ""
    for number in range(20, 40):
        page = await get(site, f"/jobs?limit=3&cursor={cursor}")
        seen += [job["id"] for job in page["items"]]
        cursor = page["next"]
        if not cursor:
            break
        await site.store(dispatched(number))
    assert seen == [f"job-{number:03}" for number in reversed(range(20))]


async def test_a_search_that_finds_little_goes_on_where_it_stopped(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.console.read_models.job_list.SEARCH_SECONDS", -1.0)
    monkeypatch.setattr("penstock.console.read_models.job_list._WINDOW", 4)
    await site.store(dispatched(0, tags=("rare",)), *(dispatched(n) for n in range(1, 10)))
    pages, cursor = [], ""
    while True:
        page = await get(site, f"/jobs?q=ra&cursor={cursor}")  # too short for the index
        pages.append((page["complete"], [job["id"] for job in page["items"]]))
        cursor = page["next"]
        if not cursor:
            break
    assert pages == [(False, []), (False, []), (True, ["job-000"])]


async def test_a_cursor_of_other_filters_is_refused_with_what_to_do(site: Site) -> None:
    await site.store(*(dispatched(number) for number in range(3)))
    cursor = (await get(site, "/jobs?limit=1"))["next"]
    problem = await get(site, f"/jobs?state=waiting&cursor={cursor}", status=400)
    assert "from this console" in problem["detail"]


async def test_one_job_is_read_from_its_own_events_without_its_arguments(site: Site) -> None:
    await site.store(dispatched(1), *died(1, "orders timed out"))
    job = await get(site, "/jobs/job-001")
    assert (job["job"]["state"], job["error_message"]) == ("dead", "orders timed out")
    assert [attempt["end"] for attempt in job["attempts"]] == ["JobFailed"]
    events = await get(site, "/jobs/job-001/events")
    assert [event["type"] for event in events["items"]] == [
        "JobDispatched", "JobStarted", "JobFailed", "JobDead"
    ]  # fmt: skip
    text = (await site.client.get("/api/v1/jobs/job-001")).text
    assert "secret" not in text
    assert "c2VjcmV0" not in text, "nor as base64"


async def test_the_middle_of_a_long_history_is_left_out(site: Site) -> None:
    start = {"job_id": "job-001", "queue": "reports", "attempt": 1, "host": "h", "worker": "w"}
    await site.store(dispatched(1), *(JobStarted(**start) for _ in range(450)))
    events = await get(site, "/jobs/job-001/events")
    assert (len(events["items"]), events["total"], events["left_out"]) == (400, 451, 51)


async def test_promises_attention_and_pools_are_those_of_the_snapshots(site: Site) -> None:
    budget = Budget(
        sla_seconds=30, quantile=0.95, window_seconds=86_400, jobs=1000, late=80, remaining_share=0
    )
    await site.publish(
        site.subjects.pool_snapshot("reports"),
        PoolSnapshot(
            pool="reports",
            queues=("reports",),
            waiting=7,
            oldest_waiting_seconds=41,
            budget=budget,
        ),
    )
    await site.publish(
        site.subjects.host_snapshot("h1"),
        HostSnapshot(
            host="h1",
            cpu_cores=4,
            memory_bytes=2**33,
            pools={"reports": PoolWorkers(planned=2, started=2, ready=2)},
        ),
    )
    promises = (await get(site, "/promises"))["items"]
    assert [(one["pool"], one["state"], one["kept_share"]) for one in promises] == [
        ("reports", "late", 0.92), ("imports", "unknown", None)
    ]  # fmt: skip
    overview = (await get(site, "/overview"))["overview"]
    assert [one["kind"] for one in overview["attention"]] == ["late", "spent"]
    assert overview["hosts"][0]["ready"] == 2
    pool = await get(site, "/pools/reports")
    assert (pool["pool"]["waiting"], pool["snapshot"]["waiting"]) == (7, 7)
    assert "there is no pool 'gone'" in (await get(site, "/pools/gone", status=404))["detail"]


async def test_decisions_are_listed_and_shown_with_all_reasons(site: Site) -> None:
    def decision(current: int, target: int) -> ScalingDecisionMade:
        reasons = (
            Reason(step="strategy", rule="drain", workers=9, text="9: to drain"),
            Reason(step="bounds", rule="max", workers=target, text=f"{target}: at most"),
        )
        return ScalingDecisionMade(
            pool="reports",
            current=current,
            target=target,
            reasons=reasons,
            strategy="hybrid",
            sla_seconds=30,
        )

    made = [decision(0, 1), decision(1, 1), decision(1, 4)]
    await site.store(*made)
    listed = (await get(site, "/decisions"))["items"]
    assert [(one["current"], one["target"]) for one in listed] == [(1, 4), (0, 1)]
    assert len((await get(site, "/decisions?every=true"))["items"]) == 3
    assert (await get(site, "/decisions?pool=imports"))["items"] == []
    shown = await get(site, f"/decisions/{made[2].id}")
    assert [one["text"] for one in shown["event"]["reasons"]] == ["9: to drain", "4: at most"]
    assert (shown["earlier"], shown["later"]) == (made[0].id, "")


async def test_queues_are_counted_from_the_log_and_say_why_they_are_paused(site: Site) -> None:
    await site.store(
        dispatched(1),
        dispatched(2),
        *died(2, "x"),
        QueuePaused(queue="reports", reason="closed"),
    )
    [queue] = [one for one in (await get(site, "/queues"))["items"] if one["queue"] == "reports"]
    assert (queue["waiting"], queue["dead"], queue["pause_reason"]) == (1, 1, "closed")
    assert queue["pool"] == "reports"
    assert queue["oldest_waiting_since"] is not None


async def test_an_unchanged_answer_is_not_sent_again(site: Site) -> None:
    await site.store(dispatched(1))
    first = await site.client.get("/api/v1/jobs")
    tag = {"If-None-Match": first.headers["etag"]}
    again = await site.client.get("/api/v1/jobs", headers=tag)
    assert (again.status_code, again.content) == (304, b"")
    await site.store(dispatched(2))
    assert (await site.client.get("/api/v1/jobs", headers=tag)).status_code == 200


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/jobs?limit=501", 400, ""),
        ("/jobs?state=gone", 400, "expected one of"),
        ("/jobs/no.such", 400, "letters, digits"),
        ("/jobs/unknown", 404, "or not any more"),
        ("/nothing", 404, ""),
        ("/events/stream?key=a.b", 400, "letters, digits"),
    ],
)
async def test_errors_are_problem_details(site: Site, path: str, status: int, words: str) -> None:
    answer = await site.client.get(f"/api/v1{path}", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"]) == (status, status)
    assert words in problem["detail"]
    assert problem["request_id"] == answer.headers["x-request-id"] == "mine-1"


async def test_the_description_names_every_endpoint(site: Site) -> None:
    described = await get(site, "/openapi.json")
    assert described["openapi"].startswith("3.1")
    declared = {
        route.path_format
        for route in site.client._transport.app._app.routes  # type: ignore[attr-defined]
        if route.path_format.startswith("/api/v1/") and "openapi" not in route.path_format
    }
    assert set(described["paths"]) == declared
    assert len(declared) >= 17


async def test_events_are_streamed_without_arguments_and_go_on_after_the_last_one(
    site: Site,
) -> None:
    first = await site.store(dispatched(1))
    await site.store(dispatched(2))
    from penstock.console.api.events import _sent

    subject = site.subjects.events()
    messages = site.bus.follow(site.subjects.events_stream, [subject], first + 1)
    stream = _sent(messages, lambda: None, lambda: True)
    async with asyncio.timeout(10):
        assert await anext(stream) == b": events follow\n\n"
        event = await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]
    assert event.startswith(b"id: %d\nevent: JobDispatched\ndata: {" % (first + 1))
    assert b"job-002" in event
    assert b"payload" not in event


async def test_rows_to_which_no_event_comes_are_reported_as_behind(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.store(dispatched(1))
    monkeypatch.setattr("penstock.console.read_models.projection._COMPARE_SECONDS", 0.01)
    site.console.projection._position -= 1  # as if the last event had not come
    await eventually(lambda: site.console.standing.behind_seconds > 0, 10, "behind")
