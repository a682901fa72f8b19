"""Answers for past moments are the answers that were given then."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import msgspec
import pytest
from litestar.routes import HTTPRoute
from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person
from tests.component.console.test_console_api import died, dispatched, get
from tests.waiting import eventually

from penstock.console.app import application
from penstock.console.web import once, past_requests
from penstock.console.web.credentials import Local, Principal
from penstock.console.web.past_requests import answers_as_of
from penstock.console.web.rate_limits import RateLimits
from penstock.console.web.scopes import Scope
from penstock.events.envelope import Event
from penstock.events.job import JobCarried, JobCompleted, JobStarted
from penstock.events.orders import PoolHeld, PoolReleased
from penstock.events.queue import QueuePaused, QueueResumed
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, PoolWorkers
from penstock.operations.orders import OperatorOrders

COMPARED = (
    *("/overview", "/promises", "/attention", "/pools", "/pools/reports", "/decisions"),
    *("/decisions?every=true", "/pools/reports/explanation"),
    *("/queues", "/queues/reports", "/hosts", "/hosts/h1", "/capacity"),
    *("/jobs/job-001", "/jobs/job-001/events", "/jobs/job-002"),
)
AGES = {"standing", "snapshot_age_seconds", "age_seconds", "oldest_waiting_since"}


@pytest.fixture
def ada(site: Site) -> httpx.AsyncClient:
    return site.caller(Person())


def decided(target: int, current: int, pool: str = "reports") -> ScalingDecisionMade:
    text = f"{target} workers for what waits"
    reasons = (Reason(step="strategy", rule="backlog", workers=target, text=text),)
    return ScalingDecisionMade(
        pool=pool,
        current=current,
        target=target,
        reasons=reasons,
        strategy="backlog",
        sla_seconds=30,
        round=target,
    )


def measured(waiting: int) -> list[tuple[str, Event]]:
    workers = {"reports": PoolWorkers(planned=2, started=2, ready=waiting % 3)}
    return [
        ("pool", PoolSnapshot(pool="reports", queues=("reports",), waiting=waiting)),
        ("host", HostSnapshot(host="h1", cpu_cores=8, memory_bytes=2**34, pools=workers)),
    ]


def hold() -> PoolHeld:
    until = datetime.now(UTC) + timedelta(hours=1)
    return PoolHeld(pool="reports", until=until, at_least=3, at_most=None, reason="sale")


def started(number: int) -> JobStarted:
    about: dict[str, Any] = {"job_id": f"job-{number:03}", "queue": "reports", "attempt": 1}
    return JobStarted(**about, host="h1", worker="w1")


def completed(number: int) -> JobCompleted:
    about: dict[str, Any] = {"job_id": f"job-{number:03}", "queue": "reports", "attempt": 1}
    return JobCompleted(**about, run_seconds=1.0)


STAGES: tuple[Callable[[], tuple[Event, ...]], ...] = (
    lambda: (dispatched(1), dispatched(2), decided(2, 0)),
    lambda: (started(1), decided(2, 2)),
    lambda: (completed(1), dispatched(3), decided(5, 2)),
    lambda: (*died(2, "orders timed out"), QueuePaused(queue="reports", reason="repair")),
    lambda: (hold(), QueueResumed(queue="reports"), started(3)),
    lambda: (PoolReleased(pool="reports"), decided(1, 5), completed(3)),
)


async def store(site: Site, stage: int) -> None:
    """Snapshots and events of one stage, until the console shows them."""
    for noun, snapshot in measured(7 * stage + 1):
        subject = {"pool": site.subjects.pool_snapshot, "host": site.subjects.host_snapshot}[noun]
        await site.publish(subject(snapshot.key), snapshot)
    for event in STAGES[stage]():
        before = site.console.present.version
        if isinstance(event, PoolHeld):
            orders = OperatorOrders(site.bus, site.subjects, "test")
            await orders.hold("reports", event.until, event.at_least, None, event.reason)
        elif isinstance(event, PoolReleased):
            await OperatorOrders(site.bus, site.subjects, "test").release("reports")
        else:
            await site.store(event)
        if event.noun == "pool":
            await shown_after(site, before)


async def shown_after(site: Site, version: int) -> None:
    present = site.console.present
    await eventually(lambda: present.version > version, 10, "the order or decision")


def bare(value: Any) -> Any:
    """An answer without what says how old its parts are."""
    if isinstance(value, dict):
        return {key: bare(one) for key, one in value.items() if key not in AGES}
    return [bare(one) for one in value] if isinstance(value, list) else value


def moment(site: Site) -> str:
    return datetime.fromtimestamp(site.bus.now(), UTC).isoformat().replace("+00:00", "Z")


async def test_an_answer_as_of_a_moment_is_the_one_that_was_given_then(site: Site) -> None:
    given: list[tuple[str, str, Any]] = []
    for stage in range(len(STAGES)):
        await store(site, stage)
        at = moment(site)
        given += [(path, at, bare(await get(site, path))) for path in COMPARED]
    assert len({str(answer) for path, _, answer in given if path == "/overview"}) == len(STAGES)
    for path, at, answer in given:
        sign = "&" if "?" in path else "?"
        past = await get(site, f"{path}{sign}as_of={at}")
        assert bare(past) == answer, (path, at)


async def test_an_answer_is_repeated_by_the_moment_that_it_states(site: Site) -> None:
    await store(site, 0)
    made_earlier = datetime.now(UTC) - timedelta(minutes=5)
    late = (msgspec.structs.replace(one, at=made_earlier) for one in (dispatched(3), dispatched(4)))
    await site.store(*late)
    for path in ("/queues", "/promises", "/overview"):
        given = await get(site, path)
        as_of = given["standing"]["as_of"]
        past = await get(site, f"{path}?as_of={as_of}")
        assert past["standing"]["position"] == given["standing"]["position"], path
        assert past["standing"]["as_of"] == as_of
    assert (await get(site, "/jobs"))["standing"]["as_of"] == as_of


async def test_an_answer_states_the_moment_of_the_rows_that_it_shows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store(site, 0)
    console = site.console
    before, run = console.standing, console._reads.run

    async def then_more(query: Callable[[], Any]) -> Any:
        read = await run(query)
        await site.store(dispatched(int(console.standing.position) + 100))
        return read

    monkeypatch.setattr(console._reads, "run", then_more)
    for path in ("/jobs", "/queues", "/promises", "/overview", "/attention"):
        before = console.standing
        given = (await get(site, path))["standing"]
        assert console.standing.position > before.position
        assert int(given["position"]) == before.position, path


async def test_what_an_answer_rests_on_is_stated(site: Site) -> None:
    await store(site, 0)
    at = moment(site)
    await store(site, 1)
    past = (await get(site, f"/overview?as_of={at}"))["standing"]
    now = (await get(site, "/overview"))["standing"]
    assert past["position"] < now["position"]
    assert now["past"] is None
    assert past["past"]["moment"] == at
    assert past["past"]["events_until"] <= at
    assert past["past"]["snapshots_until"] <= at
    assert past["as_of"] == past["past"]["events_until"]
    assert any("reports of workers" in note for note in past["past"]["notes"])


async def test_decisions_and_jobs_of_later_are_not_shown(site: Site) -> None:
    first = decided(2, 0)
    await site.store(first, dispatched(1))
    at = moment(site)
    second = decided(5, 2)
    await site.store(second, dispatched(2), started(1))
    listed = (await get(site, f"/decisions?as_of={at}"))["items"]
    assert [one["id"] for one in listed] == [first.id]
    assert (await get(site, f"/decisions/{first.id}"))["later"]
    assert (await get(site, f"/decisions/{first.id}?as_of={at}"))["later"] == ""
    await get(site, f"/decisions/{second.id}?as_of={at}", 404)
    await get(site, f"/jobs/job-002?as_of={at}", 404)
    assert (await get(site, f"/jobs/job-001?as_of={at}"))["job"]["state"] == "waiting"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yesterday", "expected a time"),
        ("2026-11-22T25:00:00Z", "expected a time"),
        ("0001-01-01T00:00:00%2B14:00", "expected a time"),
        ("2199-01-01T00:00:00Z", "in the future"),
        ("9999-12-31T23:59:59-14:00", "expected a time"),
        ("2026-01-01T00:00:00Z&as_of=2026-01-02T00:00:00Z", "given 2 times"),
    ],
)
async def test_what_is_no_past_moment_is_refused(site: Site, text: str, words: str) -> None:
    await store(site, 0)
    for path in ("/overview", "/decisions", "/jobs/job-001"):
        assert words in (await get(site, f"{path}?as_of={text}", 400))["detail"]


async def test_a_moment_may_be_of_any_zone_and_its_plus_sign_lost(site: Site) -> None:
    await store(site, 0)
    at = datetime.fromtimestamp(site.bus.now(), UTC)
    berlin = at.astimezone(timezone(timedelta(hours=1))).isoformat()
    for text in (berlin.replace("+", "%2B"), berlin, at.replace(tzinfo=None).isoformat()):
        past = (await get(site, f"/overview?as_of={text}"))["standing"]["past"]
        assert datetime.fromisoformat(past["moment"]) == at, text


async def test_before_what_is_kept_is_a_problem_of_its_own(site: Site) -> None:
    await store(site, 0)
    before = "2020-01-01T00:00:00Z"
    for path in ("/overview", "/pools", "/jobs/job-001", "/decisions", "/pools/reports/series"):
        problem = await get(site, f"{path}?as_of={before}", 410)
        assert "kept" in problem["detail"], path


async def test_measurements_before_the_first_are_not_kept(site: Site) -> None:
    await site.store(dispatched(1))
    at = moment(site)
    await store(site, 1)
    problem = await get(site, f"/pools?as_of={at}", 410)
    assert "what was measured" in problem["detail"]
    await get(site, f"/jobs/job-001?as_of={at}")


async def test_a_job_whose_history_was_shortened_is_not_said_to_be_unknown(site: Site) -> None:
    await site.store(dispatched(1))
    at = moment(site)
    about: dict[str, Any] = {"job_id": "job-009", "queue": "reports", "function": "shop.load"}
    long_ago = datetime.now(UTC) - timedelta(days=3)
    about |= {"dispatched_at": long_ago, "available_at": long_ago, "state": "waiting"}
    await site.store(JobCarried(**about, payload=b"", changed_by=1, life_from=1))
    problem = await get(site, f"/jobs/job-009?as_of={at}", 410)
    assert "shortened" in problem["detail"]


async def test_nothing_else_answers_as_if_a_past_moment_were_now(site: Site) -> None:
    """Each endpoint and page has the parameter, or refuses it and names those that have it."""
    guarded = Guarded(site)
    client = await guarded.bearer(*(scope for scope in Scope if scope is not Scope.PUBLIC))
    wrong: list[str] = []
    for route in application(site.console, Local()).routes:
        if not isinstance(route, HTTPRoute):
            continue
        for handler in route.route_handlers:
            has_parameter = "as_of" in handler.parsed_fn_signature.parameters
            if answers_as_of(handler.opt) != has_parameter:
                wrong.append(f"{route.path_format} says that it answers and does not, or reverse")
            if answers_as_of(handler.opt) or route.path_format.startswith("/static"):
                continue
            path = re.sub(r"\{[^}]*\}", "1", route.path_format)
            for method in sorted({str(one) for one in handler.http_methods} - {"OPTIONS"}):
                answer = await client.request(method, f"{path}?as_of=2026-01-01T00:00:00Z")
                if answer.status_code == 403 and "sec-fetch-site" in answer.text.lower():
                    continue  # a form of another site
                if answer.status_code != 400 or "as_of" not in answer.text:
                    wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:80]}")
    assert wrong == []
    problem = await get(site, "/failures?as_of=2026-01-01T00:00:00Z", 400)
    assert "/api/v1/pools/{name}" in problem["detail"]


async def test_nothing_acts_in_the_past(site: Site, ada: httpx.AsyncClient) -> None:
    await store(site, 0)
    path = f"/api/v1/jobs/job-001/cancel?as_of={moment(site)}"
    answer = await ada.post(path, json={})
    assert (answer.status_code, "nothing can be done" in answer.text) == (400, True)
    assert (await get(site, "/jobs/job-001"))["job"]["state"] == "waiting"


async def test_a_caller_may_ask_so_many_times_a_minute(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(once.time, "time", lambda: 60.0)
    monkeypatch.setattr(past_requests, "READS_PER_MINUTE", 2)
    client = site.caller(Local())
    path = "/api/v1/jobs/job-001?as_of=2026-01-01T00:00:00Z"
    answers = [await client.get(path) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [410, 410, 429]
    assert "2 requests for past moments" in answers[-1].json()["detail"]
    assert (await client.get("/api/v1/jobs/job-001")).status_code == 404


async def test_all_tokens_of_a_person_count_together(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Token(Local):
        def __init__(self, name: str, account: str) -> None:
            self.name, self.account = name, account

        def principal(self, headers: Mapping[str, str]) -> Principal | None:
            whole = super().principal(headers)
            return whole and msgspec.structs.replace(
                whole, name=self.name, account=self.account, kind="token"
            )

    monkeypatch.setattr(once.time, "time", lambda: 60.0)
    limits = RateLimits(2)
    monkeypatch.setattr(past_requests, "RateLimits", lambda *_: limits)
    path = "/api/v1/jobs/job-001?as_of=2026-01-01T00:00:00Z"
    tokens = [Token("a", "ada"), Token("b", "ada"), Token("c", "ada"), Token("d", "bob")]
    answers = [await site.caller(one).get(path) for one in tokens]
    assert [answer.status_code for answer in answers] == [410, 410, 429, 410]


async def test_an_answer_reads_a_bounded_number_of_messages(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stage in range(len(STAGES)):
        await store(site, stage)
    asked: list[str] = []
    for name in ("next", "last", "last_of", "history", "count", "extent"):
        method = getattr(site.bus, name)

        async def counted(*values: Any, _of: Any = method, _name: str = name, **fields: Any) -> Any:
            asked.append(_name)
            return await _of(*values, **fields)

        monkeypatch.setattr(site.bus, name, counted)
    await get(site, f"/overview?as_of={moment(site)}")
    assert len(asked) <= 80, asked
    assert asked.count("history") <= 3, asked
