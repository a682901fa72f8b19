"""The database of read models: one writer, a few readers, and the position in the log.

The position is stored in the transaction that stores the rows, so a process that is killed at any
moment finds rows and position that agree. The files can be removed at any time: they are made anew
from the event log.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec

from penstock.console.core.count_points import CountPoint, Pace, kept_until
from penstock.console.core.folding import Changes, Rows, fold, stretch
from penstock.console.core.log_entry import LogEntry, micros
from penstock.console.core.series import ChunkKey
from penstock.console.core.tables import JOBS, TABLES, Retention, Table
from penstock.console.core.times import instant
from penstock.console.read_models.columns import Columns, SqlValue
from penstock.console.read_models.searching.arguments import SCHEMA as ARGUMENTS_SCHEMA
from penstock.console.read_models.searching.arguments import TABLE as ARGUMENTS
from penstock.console.read_models.searching.arguments import remove_items, store_items
from penstock.console.read_models.searching.places import store_places
from penstock.console.read_models.searching.text_index import TextIndex

Row = TypeVar("Row", bound=msgspec.Struct)

VERSION = 9
"""Raise it when rows or their folds change: the rows are then made anew from the event log."""
FILE = "live.db"
_BUSY_MS = 5_000
_CHECKPOINT_PAGES = 8_000
"""A batch writes some 500 pages: with the default of 1,000, many are copied and synced twice."""
_MOST_KEYS = 500
"""Keys of one query for rows."""
_TRIMMED_AT_ONCE = 2_000
"""Rows of one transaction, which takes 15 ms."""
MOST_BYTES = 8_000_000_000
"""Of the database and its index of texts: beyond it the oldest finished jobs go, whatever their
retention."""
_NAMES = "SELECT name FROM sqlite_master"

_OWN_SCHEMA = (
    "CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID",
    "CREATE TABLE counts (table_name TEXT, part TEXT, state TEXT, rows INTEGER NOT NULL,"
    " PRIMARY KEY (table_name, part, state)) WITHOUT ROWID",
    "CREATE TABLE series (kind TEXT, name TEXT, step INTEGER, hour INTEGER, body BLOB NOT NULL,"
    " PRIMARY KEY (kind, name, step, hour))",
)
_COUNT_POINTS = (
    "CREATE TABLE IF NOT EXISTS count_points (position INTEGER PRIMARY KEY, at_us INTEGER NOT NULL,"
    " step INTEGER NOT NULL, body BLOB NOT NULL)",
    "CREATE INDEX IF NOT EXISTS count_points_by_age ON count_points (step, at_us)",
)
"""Made where they are missing, also in a database of a former version."""


class Store:
    """The database in a folder; made where it is missing.

    Writing is for one thread at a time; :meth:`reading` is for any thread.

    Args:
        folder: of the console's files; the database lies in ``read-v<version>`` below it.
        tables: that are kept.
        file: its name.
        version: of the tables.
        arguments: of jobs, that lists are searched by.

    Attributes:
        path: of the database.
        arguments: those by which the jobs in it are found.
        has_other_arguments: whether it was begun with others than are wanted now.
        cursor_key: seals the cursors of lists.
        texts: finds rows by parts of their texts; None for a version without.
    """

    def __init__(
        self,
        folder: Path,
        tables: Iterable[Table[msgspec.Struct]] = TABLES,
        file: str = FILE,
        version: int = VERSION,
        arguments: Sequence[str] = (),
    ) -> None:
        self.tables = tuple(tables)
        self.columns: Mapping[str, Columns[Any]] = {
            table.name: Columns(table) for table in self.tables
        }
        self._searched = next((one for one in self.columns.values() if one.search), None)
        self.path = folder / f"read-v{version}" / file
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._readers = threading.local()
        self._writer = self._open_writer()
        self._pace = Pace()
        if as_of := _fact(self._writer, "as_of"):
            self._pace.reached(micros(datetime.fromisoformat(as_of)))
        self.cursor_key = bytes.fromhex(self._fact_or("cursor_key", secrets.token_hex(32)))
        self.texts = self._open_texts()
        self._wanted = frozenset(arguments)
        if not self.position:
            self.set_fact("arguments", " ".join(sorted(self._wanted)))
        kept = frozenset((_fact(self._writer, "arguments") or "").split())
        self._has_arguments = bool(kept)
        self.has_other_arguments = kept != self._wanted
        self.arguments = tuple(sorted(kept & self._wanted))

    # --- writing ----------------------------------------------------------------------------------
    def apply(self, log: Sequence[LogEntry]) -> Changes:
        """Folds a stretch of the log in one transaction; entries before the position are left out.

        Returns:
            What changed.
        """
        position = self.position
        new = [entry for entry in log if entry.sequence > position]
        if not new:
            return Changes({}, sequence=position)
        whole = stretch(self.tables, new)
        before: dict[str, Rows] = {
            table.name: dict(self._rows(table, whole.touched(table.name))) for table in self.tables
        }
        changes = fold(self.tables, before, whole)
        with self._writer:
            self._keep_counts(position, new[0])
            for table in self.tables:
                self._store(table, changes.rows.get(table.name, {}), before[table.name])
            if self.arguments:
                jobs = before[JOBS.name] | changes.rows.get(JOBS.name, {})
                store_items(self._writer, new, jobs, self.arguments)
            self._count(changes.counts)
            self._set_fact("position", str(changes.sequence))
            if stored_us := new[-1].stored_us:
                self._set_fact("as_of", instant(stored_us).isoformat())
        self._pace.reached(new[-1].stored_us)
        return changes

    def begin_anew(self, reason: str) -> None:
        """Removes all rows, for the log to be read from its beginning.

        Args:
            reason: why, as pages state it; empty for a first start.
        """
        with self._writer:
            for columns in self.columns.values():
                for name in columns.tables:
                    self._writer.execute(f"DELETE FROM {name}")
            for name in ("counts", "count_points", ARGUMENTS):
                self._writer.execute(f"DELETE FROM {name}")
            self._set_fact("position", "0")
            self._set_fact("gap", reason)
            self._set_fact("complete_since", "")

    def trim(self, now_us: int) -> int:
        """Removes some of the rows whose retention has passed, or that are too many.

        Returns:
            How many; 0 once nothing is left to remove.
        """
        with self._writer:
            self._writer.executemany(
                "DELETE FROM count_points WHERE step = ? AND at_us < ?", kept_until(now_us)
            )
        return sum(
            self._trim(table, kept, now_us) for table in self.tables for kept in table.retention
        )

    def set_fact(self, name: str, value: str) -> None:
        """Stores a fact about the rows, such as since when they are whole."""
        with self._writer:
            self._set_fact(name, value)

    def store_series(
        self, chunks: Sequence[tuple[ChunkKey, bytes]], oldest: Sequence[tuple[int, int]] = ()
    ) -> None:
        """Stores hours of measurements, and removes old ones.

        Args:
            chunks: what is stored.
            oldest: by resolution in seconds, the first hour that is kept.
        """
        with self._writer:
            self._writer.executemany(
                "INSERT OR REPLACE INTO series VALUES (?, ?, ?, ?, ?)",
                [(*key, body) for key, body in chunks],
            )
            self._writer.executemany("DELETE FROM series WHERE step = ? AND hour < ?", oldest)

    def read_series(self, since_hour: int = 0) -> list[tuple[ChunkKey, bytes]]:
        """Measurements from an hour on; for the thread that writes, before it begins."""
        query = "SELECT kind, name, step, hour, body FROM series WHERE hour >= ?"
        stored = self._writer.execute(query, (since_hour,))
        return [(ChunkKey(*values[:4]), values[4]) for values in stored]

    def forget_marks(self, last: int) -> None:
        """Removes the marks up to this one: their rows are in the text index now."""
        assert self._searched is not None, "marks are of a table that is searched"
        with self._writer:
            self._writer.execute(f"DELETE FROM {self._searched.marks} WHERE mark <= ?", (last,))

    def close(self) -> None:
        """Closes the writer's connection; those of readers close with their threads."""
        if self.texts is not None:
            self.texts.close()
        self._writer.close()

    # --- reading ----------------------------------------------------------------------------------
    @property
    def position(self) -> int:
        """Sequence of the last entry that was folded; 0 before the first."""
        return int(_fact(self._writer, "position") or 0)

    def fits(self) -> bool:
        """Whether its tables have the columns that this version reads, and its indexes."""
        names = self._names()
        return all(
            set(columns.names) <= {row[1] for row in self._writer.execute(columns.described)}
            and columns.indexes | columns.tables <= names
            for columns in self.columns.values()
        )

    @contextmanager
    def reading(self) -> Iterator[Snapshot]:
        """All that is read in the block is of one moment."""
        connection: apsw.Connection | None = getattr(self._readers, "connection", None)
        if connection is None:
            connection = _connect(self.path, apsw.SQLITE_OPEN_READONLY)
            if self.texts is not None:
                self.texts.attach_to(connection)
            self._readers.connection = connection
        with connection:
            yield Snapshot(connection, self.columns)

    # --- details ----------------------------------------------------------------------------------
    def _open_writer(self) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        connection = _connect(self.path, flags)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "normal")
        connection.pragma("wal_autocheckpoint", _CHECKPOINT_PAGES)
        if not connection.pragma("user_version"):
            with connection:
                for statement in _OWN_SCHEMA:
                    connection.execute(statement)
                for columns in self.columns.values():
                    for statement in columns.schema:
                        connection.execute(statement)
                connection.pragma("user_version", VERSION)
        with connection:
            for statement in (*_COUNT_POINTS, *ARGUMENTS_SCHEMA):
                connection.execute(statement)
        return connection

    def _names(self) -> set[str]:
        return {str(name) for (name,) in self._writer.execute(_NAMES)}

    def _open_texts(self) -> TextIndex | None:
        columns = self._searched
        if columns is None or not columns.tables <= self._names():
            return None
        texts = TextIndex(self.path, columns)
        if self._fact_or("texts", texts.id) != texts.id:  # its file was lost
            with self._writer:
                self._writer.execute(texts.mark_all)
                self._set_fact("texts", texts.id)
        return texts

    def _rows(self, table: Table[Row], keys: Iterable[str]) -> Iterator[tuple[str, Row]]:
        columns: Columns[Any] = self.columns[table.name]
        position = columns.names.index(table.key)
        wanted = list(keys)
        for start in range(0, len(wanted), _MOST_KEYS):
            part = wanted[start : start + _MOST_KEYS]
            marks = ", ".join("?" * len(part))
            query = f"{columns.select} WHERE {table.key} IN ({marks})"
            for values in self._writer.execute(query, part):
                yield str(values[position]), columns.row(values)

    def _store(self, table: Table[Row], rows: Rows, before: Rows) -> None:
        columns: Columns[Any] = self.columns[table.name]
        stored = [columns.values(row) for row in rows.values() if row is not None]
        removed = [(key,) for key, row in rows.items() if row is None]
        if stored:
            self._writer.executemany(columns.upsert, stored)
        if removed:
            self._writer.executemany(f"DELETE FROM {table.name} WHERE {table.key} = ?", removed)
        if table.search is not None:
            store_places(self._writer, columns, table.search, rows, before)
            if removed and self._has_arguments:
                remove_items(self._writer, removed)

    def _count(self, counts: Mapping[tuple[str, str, str], int]) -> None:
        self._writer.executemany(
            "INSERT INTO counts VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET rows = rows + excluded.rows",
            [(*group, change) for group, change in counts.items()],
        )

    def _keep_counts(self, position: int, following: LogEntry) -> None:
        """Keeps the counts before the first entry of a later stretch of time."""
        due = self._pace.due(following.stored_us)
        if due is None or not position:
            return
        counts = _counts(self._writer, JOBS.name)
        point = CountPoint.of(position, *due, counts)
        self._pace.kept(len(counts))
        self._writer.execute("INSERT OR REPLACE INTO count_points VALUES (?, ?, ?, ?)", point)

    def _trim(self, table: Table[Row], kept: Retention, now_us: int) -> int:
        columns: Columns[Any] = self.columns[table.name]
        due = now_us - int(kept.seconds * 1_000_000)
        surplus = self._surplus(table, kept)
        condition = f"{kept.column} < ?{f' AND {kept.where}' if kept.where else ''}"
        query = f"{columns.select} WHERE {condition} ORDER BY {kept.column} LIMIT ?"
        bindings = (2**62, surplus) if surplus else (due, _TRIMMED_AT_ONCE)
        rows = [columns.row(values) for values in self._writer.execute(query, bindings)]
        counts: dict[tuple[str, str, str], int] = {}
        if table.counted is not None:
            for row in rows:
                group = (table.name, *table.counted(row))
                counts[group] = counts.get(group, 0) - 1
        with self._writer:
            before: Rows = {getattr(row, table.key): row for row in rows}
            self._store(table, dict.fromkeys(before), before)
            self._count(counts)
        if surplus and rows and self.texts is not None:
            self.texts.trimmed_until(getattr(rows[-1], kept.column))
        return len(rows)

    def _surplus(self, table: Table[Row], kept: Retention) -> int:
        """How many rows are to go whatever their age: at most as many as one transaction takes."""
        if not kept.most:
            return 0
        query = "SELECT SUM(rows) FROM counts WHERE table_name = ? AND state = ?"
        stored = sum(
            number or 0
            for state in kept.states
            for (number,) in self._writer.execute(query, (table.name, state))
        )
        # The index shrinks later, when its parts are made anew: what is removed until then must not
        # depend on its size alone, else all rows would go.
        used = self._used_bytes()
        if used + min(used, self.texts.used_bytes if self.texts is not None else 0) > MOST_BYTES:
            return min(stored, _TRIMMED_AT_ONCE)
        return min(max(0, stored - kept.most), _TRIMMED_AT_ONCE)

    def _used_bytes(self) -> int:
        """Without pages that removed rows have left, which are used again."""
        pages = self._writer.pragma("page_count") - self._writer.pragma("freelist_count")
        return int(pages * self._writer.pragma("page_size"))

    def _set_fact(self, name: str, value: str) -> None:
        self._writer.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, value))

    def _fact_or(self, name: str, value: str) -> str:
        stored = _fact(self._writer, name)
        if stored is None:
            self.set_fact(name, value)
        return stored or value


class Snapshot:
    """The database as of one moment."""

    def __init__(
        self, connection: apsw.Connection, columns: Mapping[str, Columns[msgspec.Struct]]
    ) -> None:
        self._connection, self._columns = connection, columns

    @property
    def position(self) -> int:
        """Sequence of the last entry that was folded."""
        return int(self.fact("position") or 0)

    def fact(self, name: str) -> str | None:
        """What was stored under a name."""
        return _fact(self._connection, name)

    def row(self, table: Table[Row], key: str) -> Row | None:
        """The row with this key."""
        return next(iter(self.rows(table, f"WHERE {table.key} = ?", (key,))), None)

    def rows(self, table: Table[Row], tail: str, bindings: Sequence[SqlValue] = ()) -> list[Row]:
        """Rows of a table.

        Args:
            table: where to look.
            tail: the query's text after its table: constant, values only by ``?``.
            bindings: those values.
        """
        return self.chosen(table, f"{self._columns[table.name].select} {tail}", bindings)

    def chosen(self, table: Table[Row], query: str, bindings: Sequence[SqlValue] = ()) -> list[Row]:
        """Rows of a table by a query for all of its columns."""
        columns: Columns[Any] = self._columns[table.name]
        return [columns.row(values) for values in self._connection.execute(query, bindings)]

    def series(self, keys: Iterable[ChunkKey]) -> list[tuple[ChunkKey, bytes]]:
        """Hours of measurements, as far as they are stored."""
        place = "kind = ? AND name = ? AND step = ? AND hour = ?"
        bodies = ((key, self.one(f"SELECT body FROM series WHERE {place}", key)) for key in keys)
        return [(key, body[0]) for key, body in bodies if body is not None]

    def one(self, query: str, bindings: Sequence[SqlValue] = ()) -> tuple[Any, ...] | None:
        """The first row of a query's answer."""
        for values in self._connection.execute(query, bindings):
            return tuple(values)
        return None

    def lazily(self, query: str, bindings: Sequence[SqlValue] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query's answer, each when it is asked for."""
        return iter(self._connection.execute(query, bindings))

    def columns(self, table: Table[Row]) -> Columns[Any]:
        """How a table is stored."""
        return self._columns[table.name]

    def all(self, query: str, bindings: Sequence[SqlValue] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query's answer."""
        return [tuple(values) for values in self._connection.execute(query, bindings)]

    def counts(self, table: Table[Row]) -> dict[tuple[str, str], int]:
        """How many rows each group holds, by (group, state), as they were counted while folding."""
        return _counts(self._connection, table.name)

    def count_point(self, position: int) -> CountPoint | None:
        """How many jobs each group held, as counted last up to this entry; None: not kept."""
        query = "SELECT * FROM count_points WHERE position <= ? ORDER BY position DESC LIMIT 1"
        values = self.one(query, (position,))
        return None if values is None else CountPoint(*values)


def _connect(path: Path, flags: int) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(_BUSY_MS)
    connection.pragma("cache_size", -16_000)
    return connection


def _counts(connection: apsw.Connection, table: str) -> dict[tuple[str, str], int]:
    query = "SELECT part, state, rows FROM counts WHERE table_name = ? AND rows > 0"
    groups = connection.execute(query, (table,))
    return {(str(part), str(state)): int(rows) for part, state, rows in groups}


def _fact(connection: apsw.Connection, name: str) -> str | None:
    for (value,) in connection.execute("SELECT value FROM facts WHERE name = ?", (name,)):
        return str(value)
    return None
