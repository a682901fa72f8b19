"""Jobs are found by a part of their texts and by a tag without a look at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_console_api import dispatched, get
from tests.component.console.test_console_job_list import index_all
from tests.component.console.writing import BEGIN
from tests.waiting import eventually

from penstock.console.core.job_query import JobQuery
from penstock.console.core.log_entry import LogEntry, micros
from penstock.console.read_models import job_list
from penstock.console.read_models import store as store_module
from penstock.console.read_models.databases import Databases, mark_whole
from penstock.console.read_models.searching import candidates, indexer, walks
from penstock.console.read_models.store import Snapshot, Store
from penstock.events.job import JobCompleted, JobDead, JobDispatched, JobError, JobEvent, JobStarted

_HOUR_US = 3_600_000_000
FEW = (
    JobQuery(text="order-0042"),
    JobQuery(error="no stock of 17"),
    JobQuery(tag="rare"),
    JobQuery(text="zzzz", state="completed"),
    JobQuery(function="f", queue="other"),
)


def log(jobs: int, deaths: tuple[int, ...] = ()) -> list[LogEntry]:
    """Jobs a minute apart; some die, all others complete."""
    entries: list[LogEntry] = []
    end: JobEvent
    for number in range(jobs):
        key, at = f"order-{number:04}", BEGIN + number * timedelta(minutes=1)
        about = {"job_id": key, "queue": "mail", "at": at}
        tags = ("rare",) if number == 7 else ()
        events = [
            JobDispatched(**about, function="f", payload=b"", tags=tags),
            JobStarted(**about, attempt=1, host="h", worker="w"),
        ]
        if number in deaths:
            error = JobError(kind="OutOfStock", message=f"no stock of {number}")
            end = JobDead(**about, function="f", error=error, attempt=1)
        else:
            end = JobCompleted(**about, attempt=1, run_seconds=1.0)
        entries += [
            LogEntry(len(entries) + n, "job", key, one) for n, one in enumerate((*events, end), 1)
        ]
    return entries


def ids(rows: Snapshot, query: JobQuery) -> list[str]:
    page = job_list.page(rows, query, 50)
    assert page.is_complete
    return [job.id for job in page.jobs]


def ids_of(store: Store, query: JobQuery) -> list[str]:
    with store.reading() as rows:
        return ids(rows, query)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(walks, "NARROW", 20)  # 300 jobs are many
    made = Store(tmp_path)
    made.apply(log(300, deaths=(17,)))
    yield made
    made.close()


@pytest.mark.parametrize("query", FEW, ids=lambda query: query.words)
def test_what_few_jobs_have_is_found_without_a_look_at_the_others(
    store: Store, query: JobQuery
) -> None:
    index_all(store)
    steps: list[int] = []

    def note(done: dict[str, Any]) -> None:
        if "jobs" in done["sql"]:  # the index has statements of its own, for each of its parts
            steps.append(done["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"])

    with store.reading() as rows:
        rows._connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, note)
        found = ids(rows, query)
        rows._connection.trace_v2(0, None)
    assert len(found) == int(not query.queue and query.text != "zzzz")
    assert 0 < sum(steps) < 1_000  # a look at each of 300 jobs takes 6,000 and more


def test_what_is_not_indexed_yet_is_found_and_after_a_kill_indexed(store: Store) -> None:
    assert ids_of(store, FEW[0]) == ["order-0042"]
    assert store.texts is not None
    store.texts.index_some()  # and killed before the marks were removed
    store.apply([entry._replace(sequence=entry.sequence + 900) for entry in log(301)[-3:]])
    assert ids_of(store, FEW[0]) == ["order-0042"]
    for _ in range(2):
        index_all(store)
        assert ids_of(store, JobQuery(text="order-0300")) == ["order-0300"]
        assert ids_of(store, FEW[1]) == ["order-0017"]


def test_where_the_index_is_far_behind_jobs_are_looked_at_one_by_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MARKS_SEARCHED", 5)
    assert ids_of(store, FEW[0]) == ["order-0042"]
    monkeypatch.setattr(job_list, "SEARCH_SECONDS", -1.0)
    monkeypatch.setattr(job_list, "_WINDOW", 10)
    with store.reading() as rows:
        page = job_list.page(rows, FEW[0], 50)
    assert not page.is_complete
    assert page.searched_until_us == micros(BEGIN) + 290 * 60_000_000


@pytest.mark.parametrize("damage", ["lost", "broken"])
def test_an_index_that_is_lost_or_cannot_be_read_is_made_anew(
    store: Store, tmp_path: Path, damage: str
) -> None:
    index_all(store)
    assert store.texts is not None
    path = store.texts.path
    store.close()
    for part in path.parent.glob(f"{path.name}*"):
        part.unlink()
    if damage == "broken":
        path.write_bytes(b"no database at all" * 1_000)
    again = Store(tmp_path)
    assert ids_of(again, FEW[0]) == ["order-0042"]
    index_all(again)
    assert ids_of(again, FEW[0]) == ["order-0042"]
    again.close()


def test_the_index_shrinks_with_the_jobs(store: Store) -> None:
    index_all(store)
    assert store.texts is not None
    end_us = micros(BEGIN) + 5 * _HOUR_US
    while store.trim(end_us + 24 * _HOUR_US):
        pass
    assert store.texts.renew_some(end_us + 2 * _HOUR_US) is False
    while store.texts.renew_some(end_us + 28 * _HOUR_US):
        pass
    parts = store.texts._all("SELECT number FROM parts")
    assert len(parts) == 1  # of the one that is dead
    assert ids_of(store, FEW[1]) == ["order-0017"]
    with store.reading() as rows:
        assert rows.all("SELECT item FROM jobs_by_item") == []


def test_the_index_counts_where_the_database_is_too_large_and_shrinks_then(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    index_all(store)
    assert store.texts is not None
    before, now_us = store.texts.used_bytes, micros(BEGIN) + 5 * _HOUR_US
    assert 0 < before < store._used_bytes()
    monkeypatch.setattr(store_module, "MOST_BYTES", store._used_bytes() + before)
    assert store.trim(now_us) == 0
    monkeypatch.setattr(store_module, "MOST_BYTES", store._used_bytes() + before - 1)
    assert store.trim(now_us) > 0
    assert store.texts.used_bytes == before
    while store.texts.renew_some(now_us):
        pass
    assert store.texts.used_bytes < before
    assert ids_of(store, FEW[1]) == ["order-0017"]


def test_the_rows_that_are_made_anew_have_an_index_of_their_own(tmp_path: Path) -> None:
    databases = Databases(tmp_path)
    databases.current.apply(log(3))
    mark_whole(databases.current)
    index_all(databases.current)
    made = databases.begin_next("a test")
    made.apply(log(60))
    index_all(made)
    databases.switch()
    databases.remove_old()
    with databases.reading() as rows:
        assert ids(rows, FEW[0]) == ["order-0042"]
    databases.close()
    names = {path.name for path in made.path.parent.glob("*")}
    assert "live-1.db.texts" in names
    assert not {"live.db", "live.db.texts"} & names


async def test_a_running_console_indexes_behind_its_fold(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "_PAUSE_SECONDS", 0.02)
    await site.store(dispatched(1), dispatched(2))

    def has_marks() -> bool:
        with site.console.store.reading() as rows:
            return bool(rows.all("SELECT mark FROM jobs_unsearched"))

    await eventually(lambda: not has_marks(), 10, "the index")
    assert [job["id"] for job in (await get(site, "/jobs?q=job-002"))["items"]] == ["job-002"]
    site.console.projection._indexer.is_held_back = True
    await site.store(dispatched(3))
    assert has_marks()
    assert [job["id"] for job in (await get(site, "/jobs?q=job-003"))["items"]] == ["job-003"]
