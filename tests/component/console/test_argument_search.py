"""Jobs are found by the arguments that the settings name, by those who may see payloads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import msgspec
import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_api_acting import Person, send
from tests.component.console.writing import events_of
from tests.unit.console.logs import call
from tests.waiting import eventually

from penstock.config import Settings
from penstock.config.load import check
from penstock.console.api.bulk import bulk_item
from penstock.console.core.bulk.actions import Action
from penstock.console.core.log_entry import LogEntry
from penstock.console.core.tables import JOBS
from penstock.console.read_models import store
from penstock.console.read_models.databases import Databases
from penstock.console.read_models.searching.arguments import TABLE
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.bulk import BulkStarted
from penstock.events.envelope import utc_now
from penstock.events.job import JobCancelled, JobDispatched, JobRevived

READER = Person(Scope.READ)


class Limited(Person):
    """A token that is limited to one queue."""

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        whole = super().principal(headers)
        return whole and msgspec.structs.replace(whole, queues=frozenset({"imports"}))


def settings_with(tmp_path: Path, *arguments: str) -> Settings:
    return check(
        {
            "pools": {"reports": {"sla_seconds": 30}},
            "host": {"run_dir": str(tmp_path / "run")},
            "console": {"searchable_arguments": list(arguments)},
        }
    )


def dispatched(job: str, queue: str = "reports", **arguments: Any) -> JobDispatched:
    body = call("load", **arguments)
    return JobDispatched(job_id=job, queue=queue, function="load", payload=body)


JOBS_OF_DAY = (
    dispatched("orders-1", table="orders", day="monday"),
    dispatched("items-1", table="items", day="monday"),
    dispatched("orders-2", queue="imports", table="orders", day="tuesday"),
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_with(tmp_path, "table", "load:report")


@pytest.fixture(autouse=True)
async def _jobs(site: Site) -> None:
    await site.store(*JOBS_OF_DAY)


async def found(site: Site, words: str, who: Person | None = None) -> Any:
    answer = await site.caller(who or Person()).get("/api/v1/jobs", params={"q": words})
    body = answer.json()
    if answer.status_code != 200:
        return answer.status_code, body["detail"]
    return sorted(job["id"] for job in body["items"])


async def test_jobs_are_found_by_an_argument(site: Site) -> None:
    assert await found(site, "args.table:orders") == ["orders-1", "orders-2"]
    assert await found(site, "args.table:orders queue:imports") == ["orders-2"]
    assert await found(site, "args.table:order") == []
    assert await found(site, "args.table:orders args.table:items") == []
    assert await found(site, "monday") == []
    assert await found(site, "orders", READER) == ["orders-1", "orders-2"]  # by their ids


async def test_who_may_not_see_payloads_may_not_search_them(site: Site) -> None:
    status, detail = await found(site, "args.table:orders", READER)
    assert (status, "needs the scope payload" in detail) == (403, True)
    page = await site.caller(READER).get("/jobs", params={"q": "args.table:orders"})
    assert "needs the scope payload" in page.text
    assert "orders-1" not in page.text
    page = await site.caller(Person()).get("/jobs", params={"q": "args.table:orders"})
    assert "orders-1" in page.text
    assert "items-1" not in page.text
    assert 'waiting <span class="number">2<' in page.text


async def test_an_argument_that_is_not_named_is_refused_with_the_setting(site: Site) -> None:
    expected = (
        "args.day: is not searched; the setting console.searchable_arguments names report, table"
    )
    assert await found(site, "args.day:monday") == (400, expected)
    page = await site.caller(Person()).get("/jobs", params={"q": "args.day:monday"})
    assert expected in page.text


async def test_a_limited_token_searches_its_own_queues(site: Site) -> None:
    limited = Limited()
    assert (await found(site, "args.table:orders", limited))[0] == 403
    assert (await found(site, "args.table:orders queue:reports", limited))[0] == 403
    assert await found(site, "args.table:orders queue:imports", limited) == ["orders-2"]
    suggest = {"field": "argument", "name": "table"}
    answer = await site.caller(limited).get("/api/v1/jobs/suggest", params=suggest)
    assert answer.status_code == 403


async def test_values_are_suggested(site: Site) -> None:
    suggest = {"field": "argument", "name": "table", "prefix": "o"}
    person, reader = site.caller(Person()), site.caller(READER)
    assert (await person.get("/api/v1/jobs/suggest", params=suggest)).json()["items"] == ["orders"]
    every = (await person.get("/api/v1/jobs/suggest", params=suggest | {"prefix": ""})).json()
    assert every["items"] == ["items", "orders"]
    assert (await reader.get("/api/v1/jobs/suggest", params=suggest)).status_code == 403
    answer = await person.get("/api/v1/jobs/suggest", params=suggest | {"name": "day"})
    assert answer.status_code == 400


async def test_bulk_actions_take_it(site: Site) -> None:
    what = {"verb": "cancel", "filter": "args.table:orders"}
    preview = await send(site.caller(Person()), "POST", "/bulk/preview", what, 200)
    assert sorted(one["id"] for one in preview["examples"]) == ["orders-1", "orders-2"]
    actor = site.caller(Person(Scope.READ, Scope.JOBS))
    refused = await actor.post("/api/v1/bulk/preview", json=what)
    assert refused.status_code == 403


async def test_filters_of_others_are_shown_without_what_the_caller_may_not_search(
    site: Site,
) -> None:
    words, masked = "queue:reports args.table:orders", "queue:reports args.table:…"
    now = utc_now()
    start = BulkStarted(
        bulk_id="b",
        by="ada",
        verb="cancel",
        target="jobs",
        position=3,
        chosen_at=now,
        total=1,
        per_second=1,
        filter=words,
    )
    action = Action(start=start, sequence=1, changed_at=now, per_second=1)
    view = {"title": "o", "path": f"/jobs?{urlencode({'q': words})}", "is_shared": True}
    saved = await site.caller(Person()).post("/api/v1/views", json=view)
    assert saved.is_success

    async def shown(who: Person) -> list[str]:
        principal = who.principal({})
        assert principal is not None
        [shared] = (await site.caller(who).get("/api/v1/views")).json()["items"]
        [(_, query)] = parse_qsl(urlsplit(shared["path"]).query)
        return [bulk_item(action, principal).filter, query]

    assert await shown(Person()) == [words] * 2
    for stranger in (Person(Scope.READ, name="eve"), Limited(name="eve")):
        assert await shown(stranger) == [masked] * 2
        assert "orders" not in (await site.caller(stranger).get("/views")).text


async def test_a_job_with_other_arguments_is_found_by_these(site: Site) -> None:
    again = call("load", table="items")
    await site.store(
        JobCancelled(job_id="orders-1", reason=""),
        JobRevived(job_id="orders-1", queue="reports", function="load", payload=again),
    )
    assert await found(site, "args.table:items") == ["items-1", "orders-1"]
    await site.store(dispatched("orders-2", table="items"))  # not valid: it has been dispatched
    assert await found(site, "args.table:orders") == ["orders-2"]


async def test_removed_jobs_leave_nothing(site: Site) -> None:
    await site.store(*(JobCancelled(job_id=one.job_id, reason="") for one in JOBS_OF_DAY))
    current = site.console.store.current
    await site.console.projection.in_writer(current.trim, 2**62)
    with current.reading() as rows:
        assert rows.counts(JOBS) == {}
        assert rows.all(f"SELECT * FROM {TABLE}") == []


async def test_rows_are_made_anew_when_the_setting_changes(site: Site, tmp_path: Path) -> None:
    async def restarted(*arguments: str) -> Site:
        return Site(site.bus, settings_with(tmp_path, *arguments), tmp_path / "restarted")

    async def made_anew(changed: Site) -> list[tuple[str]]:
        changed.start()
        store = changed.console.store
        await eventually(lambda: store.generation == 1, 10, "the new rows")
        assert await found(changed, "") == ["items-1", "orders-1", "orders-2"]
        with store.reading() as rows:
            return rows.all(f"SELECT DISTINCT item FROM {TABLE}")

    first = await restarted("table")
    first.start()
    await eventually(lambda: first.console.standing.position == 3, 10, "all events")
    await first.stop()
    second = await restarted("day")
    status, detail = await found(second, "args.day:monday")
    assert (status, "is not indexed yet: console.searchable" in detail) == (400, True)
    assert await made_anew(second) == [("day=monday",), ("day=tuesday",)]
    assert await found(second, "args.day:monday") == ["items-1", "orders-1"]
    await second.stop()
    third = await restarted()
    assert await made_anew(third) == []
    await third.stop()


def test_without_the_setting_no_call_is_looked_into(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a call was looked into")

    monkeypatch.setattr(store, "store_items", refuse)
    databases = Databases(tmp_path)
    log = [LogEntry(n, "job", "j", event) for n, event in enumerate(events_of("j"), 1)]
    databases.current.apply(log)
    databases.close()
