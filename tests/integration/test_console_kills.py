"""The console is killed at any moment while jobs run: rows and position agree, none is lost.

``CONSOLE_KILLS=200 CONSOLE_JOBS=5000 CONSOLE_SEED=7 pytest -m long PATH`` makes so many kills, at
so many jobs a second; ``CONSOLE_LOG_BYTES=8_000_000_000`` lets the event log hold them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest
from tests.integration.console_load import COMPLETED, DEAD, DISPATCHED, STARTED
from tests.integration.shell import shell_of
from tests.integration.test_console import Running
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.console.app import FIRST_ROWS_SECONDS
from penstock.console.core.tables import JOBS, TABLES
from penstock.console.read_models.databases import Databases
from penstock.console.read_models.log_batches import Pace, batches, entry
from penstock.console.read_models.store import Store
from penstock.events.subjects import Subjects
from penstock.runtime import children

SEED = int(os.environ.get("CONSOLE_SEED", "1"))
LONGEST_LIFE_SECONDS = 1.0
STARTING_SHARE = 0.2
"""Of the kills, those that come while it starts."""
REBUILDS_SHARE = 0.3
LEAST_EVENTS_PER_SECOND = 10_000
"""That a console catches up with."""
LOG_BYTES = int(os.environ.get("CONSOLE_LOG_BYTES", "400_000_000"))
TOKEN = "pst_example"


class Load:
    """A running load, and what it has stored."""

    def __init__(self, url: str, prefix: str, folder: Path, jobs_per_second: int) -> None:
        self.path = folder / "kinds"
        module = "tests.integration.console_load"
        argv = [sys.executable, "-m", module, url, prefix, str(self.path), str(jobs_per_second)]
        self.log = folder / "load.log"
        self.child = children.start(argv, name="load", log=self.log)

    async def kinds(self, position: int) -> bytes:
        """Of the events up to a position, once they are noted."""

        def read() -> bytes:
            kinds = self.path.read_bytes() if self.path.exists() else b""
            return kinds[:position] if len(kinds) >= position else b""

        return await eventually(read, 30, f"the event {position}") if position else b""


def states(kinds: bytes) -> dict[str, int]:
    """How many jobs are in each state after these events."""
    completed, dead = kinds.count(COMPLETED), kinds.count(DEAD)
    running = kinds.count(STARTED) - completed - dead
    waiting = kinds.count(DISPATCHED) - kinds.count(STARTED)
    found = {"completed": completed, "dead": dead, "running": running, "waiting": waiting}
    return {state: jobs for state, jobs in found.items() if jobs}


def rows_of(folder: Path) -> tuple[int, dict[str, int], dict[str, int]]:
    """Position, jobs by state as they were counted, and as the rows are."""
    databases = Databases(folder)
    with databases.reading() as rows:
        counted: Counter[str] = Counter()
        for (_, state), jobs in rows.counts(JOBS).items():
            counted[state] += jobs
        stored = dict(rows.all("SELECT state, COUNT(*) FROM jobs GROUP BY state"))
        position = rows.position
    databases.close()
    return position, dict(counted), stored


async def folded_from_zero(bus: NatsBus, subjects: Subjects, folder: Path, last: int) -> Store:
    """The whole event log in one go, by a console that nobody kills."""
    store = Store(folder)
    messages = bus.follow(subjects.events_stream, [subjects.events()], 1)
    async for batch, _ in batches(messages, 2_000, Pace()):
        store.apply([entry(message) for message in batch])
        if store.position >= last:
            return store
    raise AssertionError("the log ended early")


def differing_rows(one: Path, other: Path) -> dict[str, int]:
    """By table, how many rows only one of two databases has."""
    connection = apsw.Connection(str(one))
    connection.execute("ATTACH ? AS other", (str(other),))
    differing = {}
    for table in (*(table.name for table in TABLES), "counts"):
        where = "WHERE rows != 0" if table == "counts" else ""
        left, right = (f"SELECT * FROM {side}.{table} {where}" for side in ("main", "other"))
        query = f"SELECT (SELECT COUNT(*) FROM ({left} EXCEPT {right}))"
        query += f" + (SELECT COUNT(*) FROM ({right} EXCEPT {left}))"
        [(differing[table],)] = connection.execute(query)
    connection.close()
    return differing


def is_at(console: Running, end: int) -> bool:
    """Whether it has folded all, and makes nothing anew."""
    standing = (console.get("/health") or {}).get("standing", {})
    return standing.get("position") == end and not standing["rebuilding"]


def states_of(database: Path, jobs: list[dict[str, str]]) -> dict[str, str]:
    """What the console's rows say of some jobs, by id."""
    connection = apsw.Connection(str(database))
    query = "SELECT id, state FROM jobs WHERE id = ?"
    rows = [row for job in jobs for row in connection.execute(query, (job["id"],))]
    connection.close()
    return dict(rows)


@pytest.fixture
async def bus(settings: MakeSettings) -> AsyncIterator[NatsBus]:
    bus = await connect(settings(streams={"events_max_bytes": LOG_BYTES}), makes_streams=True)
    yield bus
    await bus.close()


@pytest.mark.parametrize(
    ("kills", "jobs_per_second"),
    [
        pytest.param(6, 500, id="a few"),
        pytest.param(
            int(os.environ.get("CONSOLE_KILLS", "20")),
            int(os.environ.get("CONSOLE_JOBS", "1500")),
            id="many",
            marks=pytest.mark.long,
        ),
    ],
)
async def test_rows_agree_with_the_log_whenever_the_console_is_killed(
    kills: int, jobs_per_second: int, settings: MakeSettings, bus: NatsBus, tmp_path: Path
) -> None:
    chance, subjects = random.Random(SEED), Subjects(settings.prefix)
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ops read,admin {hashlib.sha256(TOKEN.encode()).hexdigest()}\n")
    console = Running(settings(), tmp_path, TOKEN, PENSTOCK_CONSOLE__TOKENS_FILE=str(tokens))
    load = Load(settings().nats.url, settings.prefix, tmp_path, jobs_per_second)
    folder, last, moved, served, rebuilds = tmp_path / "console", 0, 0, 0, 0
    try:
        await load.kinds(1)
        for _ in range(kills):
            moves = False
            if chance.random() > STARTING_SHARE:
                await console.until("/health", bool)
                served += 1
                # One that nothing reaches in time serves what it has.
                moves = time.monotonic() - console.started_at < FIRST_ROWS_SECONDS
                if chance.random() < REBUILDS_SHARE and console.post("/rebuild"):
                    rebuilds += 1
            await asyncio.sleep(chance.uniform(0.0, LONGEST_LIFE_SECONDS))  # any moment will do
            console.child.signal(signal.SIGKILL)
            await console.child.ended()
            position, counted, stored = rows_of(folder)
            assert position >= last
            assert counted == stored == states(await load.kinds(position))
            sys.stdout.write(f"killed at event {position}\n")
            assert position > last or not moves, "it served before it had moved"
            moved += position > last
            last = position
            console.restart()
        load.child.signal(signal.SIGTERM)
        await load.child.ended()
        assert load.child.exit_code == 0, load.log.read_text()
        end = (await bus.extent(subjects.events_stream)).last
        patience = 240 + end / LEAST_EVENTS_PER_SECOND
        await eventually(lambda: is_at(console, end), patience, f"the event {end}")
        counts = console.get("/jobs/stats")
        expected = states(await load.kinds(end))
        assert {state: jobs for state, jobs in counts.items() if jobs} == expected
    finally:
        load.child.end(10.0)
        console.child.end(10.0)
    done = f"{kills} kills, {served} while it served, {moved} after it had moved, {rebuilds}"
    done += f" rebuilds, {end} events; {load.log.read_text().strip()}"
    sys.stdout.write(f"{done}\n")
    assert rows_of(folder)[0] == end
    fresh = await folded_from_zero(bus, subjects, tmp_path / "fresh", end)
    fresh.close()
    [serving] = folder.glob("read-v*/live*.db")
    assert set(differing_rows(fresh.path, serving).values()) == {0}
    shell = shell_of(settings(), tmp_path)
    listed = await shell.asked_json("job", "ls", "--limit", "300")
    assert {job["id"]: job["state"] for job in listed} == states_of(serving, listed)
