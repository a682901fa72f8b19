"""Rows that are made anew beside those that serve: whole or not at all, whenever it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.component.console.conftest import Site
from tests.component.console.test_api_acting import Person, send
from tests.component.console.test_console_api import dispatched, get
from tests.component.console.writing import events_of
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.console.core.log_entry import LogEntry
from penstock.console.core.series import ChunkKey
from penstock.console.core.tables import JOBS
from penstock.console.read_models.databases import Databases, mark_whole
from penstock.console.read_models.store import VERSION, Store
from penstock.events.envelope import encode
from penstock.testing.memory.bus import MemoryBus

CHUNK = ChunkKey("pool", "reports", 60, 1)


def log(jobs: int) -> list[LogEntry]:
    events = [(f"j{job}", event) for job in range(jobs) for event in events_of(f"j{job}")]
    return [LogEntry(n, "job", key, event) for n, (key, event) in enumerate(events, 1)]


def jobs_of(databases: Databases) -> int:
    with databases.reading() as rows:
        return sum(rows.counts(JOBS).values())


def files(folder: Path) -> list[str]:
    return sorted(f"{path.parent.name}/{path.name}" for path in folder.glob("*/*.db"))


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Databases]:
    databases = Databases(tmp_path)
    databases.current.apply(log(3))
    databases.current.store_series([(CHUNK, b"measured")])
    mark_whole(databases.current)
    yield databases
    databases.close()


def test_the_former_rows_serve_until_the_new_ones_are_whole(
    serving: Databases, tmp_path: Path
) -> None:
    made = serving.begin_next("a test")
    made.apply(log(2))
    assert (jobs_of(serving), serving.reason) == (3, "a test")
    with serving.reading() as rows:  # a query that runs while another database begins to serve
        serving.switch()
        assert sum(rows.counts(JOBS).values()) == 3
    assert (jobs_of(serving), serving.generation, serving.reason) == (2, 1, "")
    assert serving.current.read_series() == [(CHUNK, b"measured")]
    serving.remove_old()
    assert files(tmp_path) == [f"read-v{VERSION}/live-1.db"]


def test_cursors_stay_valid(serving: Databases, tmp_path: Path) -> None:
    before = serving.cursor_key
    serving.begin_next("a test").apply(log(1))
    serving.switch()
    assert serving.cursor_key == before
    serving.close()
    again = Databases(tmp_path)
    assert again.cursor_key == before
    again.close()


def test_killed_in_the_middle_it_goes_on_where_it_was(serving: Databases, tmp_path: Path) -> None:
    serving.begin_next("a test").apply(log(2))
    serving.close()
    again = Databases(tmp_path)
    assert (jobs_of(again), again.reason) == (3, "a test")
    assert again.next is not None
    assert again.next.position == 6
    again.close()


def test_rows_that_are_not_whole_yet_serve_until_there_are_whole_ones(tmp_path: Path) -> None:
    databases = Databases(tmp_path)
    databases.current.apply(log(3))
    databases.begin_next("a test").apply(log(2))
    databases.close()
    again = Databases(tmp_path)
    assert (jobs_of(again), again.reason) == (3, "a test")
    again.close()


def test_killed_before_the_former_file_was_removed_the_new_one_serves(
    serving: Databases, tmp_path: Path
) -> None:
    serving.begin_next("a test").apply(log(2))
    serving.switch()
    serving.close()
    assert len(files(tmp_path)) == 2
    again = Databases(tmp_path)
    assert (jobs_of(again), again.next) == (2, None)
    assert files(tmp_path) == [f"read-v{VERSION}/live-1.db"]
    again.close()


def former_version(folder: Path) -> None:
    store = Store(folder, version=VERSION - 1)
    store.apply(log(3))
    mark_whole(store)
    store.close()


def test_rows_of_an_earlier_version_serve_while_those_of_this_one_are_made(tmp_path: Path) -> None:
    former_version(tmp_path)
    for _ in range(2):  # also after a kill
        databases = Databases(tmp_path)
        assert (jobs_of(databases), databases.is_frozen) == (3, True)
        assert databases.reason == "its tables changed"
        databases.close()
    databases = Databases(tmp_path)
    assert databases.next is not None
    databases.next.apply(log(4))
    databases.switch()
    databases.remove_old()
    assert (jobs_of(databases), databases.is_frozen) == (4, False)
    assert files(tmp_path) == [f"read-v{VERSION}/live.db"]
    databases.close()


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE failures RENAME COLUMN deaths TO jobs", "DROP INDEX jobs_dead_by_end"],
    ids=["column", "index"],
)
def test_rows_of_an_earlier_version_that_lack_a_part_do_not_serve(
    tmp_path: Path, change: str
) -> None:
    former_version(tmp_path)
    store = Store(tmp_path, version=VERSION - 1)
    store._writer.execute(change)
    store.close()
    databases = Databases(tmp_path)
    assert (jobs_of(databases), databases.next) == (0, None)
    databases.close()
    assert files(tmp_path) == [f"read-v{VERSION}/live.db"]


async def append(site: Site, *numbers: int) -> None:
    for number in numbers:
        event = dispatched(number)
        await site.bus.append(Outgoing(site.subjects.event(event), encode(event)))


async def test_a_running_console_makes_its_rows_anew_and_misses_no_event(site: Site) -> None:
    await site.store(dispatched(1), dispatched(2))
    etag = (await site.client.get("/api/v1/jobs")).headers["etag"]
    await send(site.caller(Person()), "POST", "/rebuild", {"reason": "a test"})
    await append(site, 3)
    store = site.console.store
    await eventually(lambda: store.generation == 1, 10, "the new rows")
    await append(site, 4)
    assert await site.console.projection.reached(4, 10)
    answer = await site.client.get("/api/v1/jobs", headers={"If-None-Match": etag})
    assert [job["id"] for job in answer.json()["items"]] == [f"job-00{n}" for n in (4, 3, 2, 1)]
    assert site.console.standing.rebuilding == ""


async def test_a_console_of_another_version_serves_the_former_rows_and_then_its_own(
    settings: Settings, tmp_path: Path
) -> None:
    bus = MemoryBus()
    former_version(tmp_path)
    site = Site(bus, settings, tmp_path)
    assert [job["id"] for job in (await get(site, "/jobs"))["items"]] == ["j2", "j1", "j0"]
    assert site.console.standing.rebuilding.startswith("its tables changed")
    kinds = [one["kind"] for one in (await get(site, "/attention"))["items"]]
    assert "rebuilding" in kinds
    await append(site, 1)
    site.start()
    await eventually(lambda: site.console.store.generation == 1, 10, "its own rows")
    assert [job["id"] for job in (await get(site, "/jobs"))["items"]] == ["job-001"]
    await append(site, 2)
    assert await site.console.projection.reached(2, 10)
    await site.stop()


async def test_answers_name_since_when_counts_are_complete(
    settings: Settings, tmp_path: Path
) -> None:
    site = Site(MemoryBus(), settings, tmp_path)
    await append(site, 1, 2, 3)
    await site.bus.remove(site.subjects.events_stream, site.subjects.events(), before=3)
    [third] = await site.bus.history(site.subjects.events_stream, site.subjects.events(), 5)
    site.start()
    assert await site.console.projection.reached(3, 10)
    assert site.console.standing.complete_since == third.at
    gap = next(one for one in (await get(site, "/attention"))["items"] if one["kind"] == "gap")
    assert "counts are complete since" in gap["text"]
    await site.stop()
