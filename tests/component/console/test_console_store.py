"""Rows in the database are those of the fold, also after a kill in the middle of anything."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.component.console.writing import BEGIN, events_of
from tests.unit.console.logs import logs

from penstock.console.core.folding import fold, stretch
from penstock.console.core.log_entry import LogEntry, micros
from penstock.console.core.tables import DECISIONS, JOBS, TABLES
from penstock.console.read_models.store import Store


def contents(store: Store) -> tuple[int, dict[str, dict[str, object]], dict[str, object]]:
    """Position, rows and counts as a reader sees them."""
    with store.reading() as rows:
        tables = {
            table.name: {getattr(row, table.key): row for row in rows.rows(table, "")}
            for table in TABLES
        }
        return rows.position, tables, {table.name: rows.counts(table) for table in TABLES}


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=logs(), place=st.integers(0, 60))
def test_stored_rows_are_the_folded_rows(
    tmp_path_factory: object, log: list[LogEntry], place: int
) -> None:
    folder: Path = tmp_path_factory.mktemp("console")  # type: ignore[attr-defined]
    store = Store(folder)
    middle = place % len(log)
    for part in (log[:middle], log[middle:]):
        if part:
            store.apply(part)
    store.apply(log)  # the same again, as after a kill: it is known from the position
    position, tables, counts = contents(store)
    changes = fold(TABLES, {}, stretch(TABLES, log))
    expected = {
        table.name: {k: v for k, v in changes.rows.get(table.name, {}).items() if v is not None}
        for table in TABLES
    }
    assert (position, tables) == (log[-1].sequence, expected)
    groups = {
        (table, *group): number for table in counts for group, number in counts[table].items()
    }
    assert groups == +changes.counts
    store.close()


def test_a_killed_writer_leaves_rows_and_position_that_agree(tmp_path: Path) -> None:
    chance = random.Random(7)
    last = 0
    for _ in range(6):
        writer = subprocess.Popen(
            [sys.executable, "-m", "tests.component.console.writing", str(tmp_path)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        )
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.15))  # any moment will do
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        store = Store(tmp_path)
        position, tables, counts = contents(store)
        store.close()
        assert position >= last
        last = position
        whole, rest = divmod(position, 3)
        assert len(tables["jobs"]) == whole + bool(rest)
        assert sum(counts["jobs"].values()) == len(tables["jobs"])  # type: ignore[attr-defined]
        states = [row.state.value for row in tables["jobs"].values()]  # type: ignore[attr-defined]
        assert states.count("completed") == whole
    assert last > 0


def test_rows_of_ended_jobs_go_after_a_day_and_are_not_counted_any_more(tmp_path: Path) -> None:
    store = Store(tmp_path)
    log = [
        LogEntry(number, "job", f"j{number // 4}", event)
        for number, event in enumerate(
            [event for job in range(3) for event in (*events_of(f"j{job}"), events_of("x")[0])]
        )
        if number % 4 != 3
    ]
    store.apply([entry._replace(sequence=entry.sequence + 1) for entry in log])
    day = 86_400_000_000
    assert store.trim(micros(BEGIN) + day) == 0
    assert store.trim(micros(BEGIN) + day + 1) == 3
    with store.reading() as rows:
        assert rows.counts(JOBS) == {}
        assert rows.rows(JOBS, "") == []
        assert rows.rows(DECISIONS, "") == []
    store.close()


def ended_jobs(store: Store, jobs: int) -> list[str]:
    """The ids that are left of so many ended jobs, after all that is due was removed."""
    keyed = [
        (f"j{job}", msgspec.structs.replace(event, at=BEGIN + timedelta(seconds=job)))
        for job in range(jobs)
        for event in events_of(f"j{job}")
    ]
    store.apply([LogEntry(n, "job", key, event) for n, (key, event) in enumerate(keyed, 1)])
    while store.trim(micros(BEGIN)):
        pass
    with store.reading() as rows:
        left = [row.id for row in rows.rows(JOBS, "ORDER BY id")]
        assert sum(rows.counts(JOBS).values()) == len(left)
    store.close()
    return left


def test_of_more_ended_jobs_than_are_kept_the_oldest_go(tmp_path: Path) -> None:
    done, dead = JOBS.retention
    few = dataclasses.replace(JOBS, retention=(dataclasses.replace(done, most=2), dead))
    assert ended_jobs(Store(tmp_path, (few,)), 5) == ["j3", "j4"]


def test_ended_jobs_go_where_the_database_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(ended_jobs(Store(tmp_path / "large"), 5)) == 5
    monkeypatch.setattr("penstock.console.read_models.store.MOST_BYTES", 1)
    assert ended_jobs(Store(tmp_path / "small"), 5) == []


def test_a_gap_is_stated_and_everything_is_read_anew(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.apply([LogEntry(5, "job", "j0", events_of("j0")[0])])
    store.begin_anew("events 6 to 90 were removed")
    position, tables, counts = contents(store)
    assert (position, tables["jobs"], counts["jobs"]) == (0, {}, {})
    with store.reading() as rows:
        assert rows.fact("gap") == "events 6 to 90 were removed"
    store.close()
