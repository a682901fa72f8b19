"""A bounded file of jobs dispatched while the broker was away; sent later, in order, once.

Each job's first event is stored whole, with its id, before the dispatch returns (SQLite, synced to
the disk). Sending it is idempotent, so a crash between sending and removing does no harm, and
several processes of one user may share a file. It holds arguments in plain text, unless they are
encrypted, so no other user may read it.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from penstock.events.envelope import MalformedEvent, encode
from penstock.events.job import JOB_EVENTS, JobDispatched
from penstock.jobs.errors import OutboxFull

_BUSY_SECONDS = 10.0
_BUSY_AGAIN_SECONDS = 0.05
_PRIVATE = 0o600


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A job that waits in the file.

    Attributes:
        number: its position in the order.
        job_id: of the job.
        event: its first event; None where it cannot be read.
        refused: why the broker will never take it; empty for one that will be sent.
    """

    number: int
    job_id: str
    event: JobDispatched | None
    refused: str = ""

    @property
    def dispatched_at(self) -> datetime | None:
        return self.event.at if self.event else None


class Outbox:
    """The file. Its methods block for a disk's sync; call them beside a loop.

    Args:
        most: jobs it holds at most.

    Raises:
        OSError: it cannot be made, is no such file, or belongs to another user.
    """

    def __init__(self, path: str, most: int) -> None:
        self.path, self._most = path, most
        self._guard = threading.Lock()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        _make_private(path)
        self._file = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._file.close()
            raise OSError(f"the outbox {path} cannot be used: {error}") from error

    def _prepare(self) -> None:
        with self._guard, self._file:
            _turn_on_log(self._file)
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

    def first(self, limit: int = 100) -> list[Entry]:
        """The oldest jobs that will be sent."""
        return self._entries("WHERE refused IS NULL ORDER BY number LIMIT ?", (limit,))

    def all(self, limit: int = 1000) -> list[Entry]:
        """The oldest entries, those that were refused included."""
        return self._entries("ORDER BY number LIMIT ?", (limit,))

    def entry(self, job_id: str) -> Entry | None:
        """The job of this id; None where it is not in the file (any more)."""
        entries = self._entries("WHERE job_id = ?", (job_id,))
        return entries[0] if entries else None

    def _entries(self, which: str, values: tuple[int | str, ...]) -> list[Entry]:
        with self._guard:
            rows = self._file.execute(
                f"SELECT number, job_id, event, refused FROM jobs {which}",  # noqa: S608 - ours
                values,
            ).fetchall()
        return [
            Entry(number=number, job_id=job_id, event=_read(body), refused=refused or "")
            for number, job_id, body, refused in rows
        ]

    def remove(self, numbers: Iterable[int]) -> None:
        """Takes these entries out, since the broker keeps their jobs now. Raises sqlite3.Error."""
        with self._guard, self._file:
            self._file.executemany(
                "DELETE FROM jobs WHERE number = ?", [(number,) for number in numbers]
            )

    def refuse(self, number: int, why: str) -> None:
        """Keeps it aside: the broker will never take it."""
        with self._guard, self._file:
            self._file.execute("UPDATE jobs SET refused = ? WHERE number = ?", (why, number))

    def accept_refused(self) -> int:
        """Lets entries that were refused be tried again; how many."""
        with self._guard, self._file:
            return self._file.execute(
                "UPDATE jobs SET refused = NULL WHERE refused IS NOT NULL"
            ).rowcount

    def __len__(self) -> int:
        """Jobs that will be sent; those that were refused do not count."""
        with self._guard:
            return self._count()

    def _count(self) -> int:
        [count] = self._file.execute("SELECT count(*) FROM jobs WHERE refused IS NULL").fetchone()
        return int(count)

    def close(self) -> None:
        with self._guard:
            self._file.close()


def _read(body: bytes) -> JobDispatched | None:
    with suppress(MalformedEvent):
        event = JOB_EVENTS.decode(body)
        return event if isinstance(event, JobDispatched) else None
    return None


def _make_private(path: str) -> None:
    """The file with mode 0600, made if need be; SQLite gives its other files the same mode.

    Raises:
        OSError: it belongs to another user, or is no regular file.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, _PRIVATE)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(
                f"the outbox {path}: expected a file of user {os.getuid()}, found one of user "
                f"{status.st_uid}; give dispatch.outbox_file a path of its own"
            )
        os.fchmod(descriptor, _PRIVATE)
    finally:
        os.close(descriptor)
    for other in (f"{path}-wal", f"{path}-shm"):  # left behind with the mode of an older version
        with suppress(FileNotFoundError):
            Path(other).chmod(_PRIVATE, follow_symlinks=False)


def _turn_on_log(file: sqlite3.Connection) -> None:
    """Write-ahead logging; retried here, since SQLite's busy timeout does not cover this change."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            file.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
        time.sleep(_BUSY_AGAIN_SECONDS)
