"""A bounded file of jobs dispatched while the broker was away; sent later, in order, once.

Each job's first event is stored whole, with its id, before the dispatch returns (SQLite, synced to
the disk). Sending it is idempotent, so a crash between sending and removing does no harm, and
several processes may share a file.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

from penstock.events.envelope import encode
from penstock.events.job import JOB_EVENTS, JobDispatched
from penstock.jobs.errors import OutboxFull

_BUSY_SECONDS = 10.0


class Outbox:
    """The file. Its methods block for a disk's sync; call them beside a loop.

    Args:
        most: jobs it holds at most.

    Raises:
        OSError: it cannot be made or is no such file.
    """

    def __init__(self, path: str, most: int) -> None:
        self.path, self._most = path, most
        self._guard = threading.Lock()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        self._file = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._file.close()
            raise OSError(f"the outbox {path} cannot be used: {error}") from error

    def _prepare(self) -> None:
        with self._guard, self._file:
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = FULL")
            self._file.execute(
                "CREATE TABLE IF NOT EXISTS jobs ("
                "number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT UNIQUE, "
                "event BLOB NOT NULL, refused TEXT)"
            )

    def put(self, events: Sequence[JobDispatched]) -> None:
        """Keeps all of these jobs, or none. Raises OutboxFull, sqlite3.Error."""
        with self._guard, self._file:
            self._file.execute("BEGIN IMMEDIATE")
            if (held := self._count()) + len(events) > self._most:
                raise OutboxFull(
                    f"no broker, and the outbox {self.path} holds {held} jobs already: no room "
                    f"for {len(events)} more of at most {self._most} (dispatch.outbox_max_jobs)"
                )
            self._file.executemany(
                "INSERT OR IGNORE INTO jobs (job_id, event) VALUES (?, ?)",
                [(event.job_id, encode(event)) for event in events],
            )

    def first(self, limit: int = 100) -> list[tuple[int, JobDispatched]]:
        """The oldest jobs that wait, by number."""
        with self._guard:
            rows = self._file.execute(
                "SELECT number, event FROM jobs WHERE refused IS NULL ORDER BY number LIMIT ?",
                (limit,),
            ).fetchall()
        found = []
        for number, body in rows:
            event = JOB_EVENTS.decode(body)
            assert isinstance(event, JobDispatched)
            found.append((number, event))
        return found

    def remove(self, number: int) -> None:
        with self._guard, self._file:
            self._file.execute("DELETE FROM jobs WHERE number = ?", (number,))

    def refuse(self, number: int, why: str) -> None:
        """Keeps it aside: the broker will never take it."""
        with self._guard, self._file:
            self._file.execute("UPDATE jobs SET refused = ? WHERE number = ?", (why, number))

    def __len__(self) -> int:
        with self._guard:
            return self._count()

    def _count(self) -> int:
        [count] = self._file.execute("SELECT count(*) FROM jobs WHERE refused IS NULL").fetchone()
        return int(count)

    def close(self) -> None:
        with self._guard:
            self._file.close()
