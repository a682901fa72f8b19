"""Which rows may hold a text, newest first: an index of all trigrams, in a file of its own.

The index knows buckets of about a millisecond each, and a bucket that it names *may* hold a row
with the text: the row itself decides. So an entry that is there twice, or that its row has
outlived, does no harm. The thread that folds only marks buckets, in the transaction that stores
their rows; they are indexed later, many at once, and a mark is removed when its bucket is indexed
for good. A kill at any moment leaves marks that are indexed again, never a row that is missing.

Buckets lie in parts of 72 minutes. A part is made anew from the rows that are left when most of its
rows have been removed, by their age or for their size, and once more when the last may have been.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from penstock.console.read_models.columns import Columns

BUCKET_BITS = 10
"""Of a time in microseconds, those that do not count."""
PART_BITS = 22
"""Of a bucket's number, those within its part."""
MARKS_AT_ONCE = 20_000
"""Buckets that are indexed in one transaction."""
_RENEWED_AFTER_US = (26 * 3_600_000_000, 15 * 86_400_000_000)
"""Completed jobs are removed after a day, dead ones after 14: the rest of a part is then small."""
_BUSY_MS = 5_000
_SCHEMA = (
    "CREATE TABLE facts (id TEXT)",
    "CREATE TABLE parts (number INTEGER PRIMARY KEY, renewed_us INTEGER NOT NULL)",
)


class TextIndex:
    """The index beside a database; made where it is missing or cannot be read.

    Any thread may call it; one at a time is served. Readers of the database attach it.

    Args:
        path: of the database.
        columns: of the table whose rows are found.

    Attributes:
        id: of this file: one that was lost and made anew has another.
        used_bytes: of it, without pages that are used again, as of the last change.
    """

    def __init__(self, path: Path, columns: Columns[Any]) -> None:
        assert columns.search is not None, "a table without texts has no index of them"
        self._database, self._columns, self._by = path, columns, columns.search.by
        self.path = path.with_name(f"{path.name}.texts")
        self._lock, self._is_open = threading.Lock(), True
        self._trimmed_us, self._shrunk = 0, set[int]()
        try:
            self._connection, self.id = self._open()
        except apsw.Error:
            for old in self.path.parent.glob(f"{self.path.name}*"):
                old.unlink(missing_ok=True)
            self._connection, self.id = self._open()

        self.used_bytes = self._count_bytes()

    @property
    def mark_all(self) -> str:
        """The statement of the database that marks every bucket."""
        table = self._columns.table
        buckets = f"SELECT DISTINCT {self._by} >> {BUCKET_BITS} FROM {table} ORDER BY 1"
        return f"INSERT INTO {self._columns.marks} (bucket) {buckets}"

    def trimmed_until(self, ended_us: int) -> None:
        """Notes that rows which ended by then were removed before their time, for their size."""
        self._trimmed_us = max(self._trimmed_us, ended_us)

    def attach_to(self, reader: apsw.Connection) -> None:
        """Lets a connection that reads the database read this file, too, as ``texts``."""
        reader.execute("ATTACH ? AS texts", (_read_only(self.path),))

    def index_some(self) -> tuple[int, bool]:
        """Indexes the rows of the oldest marks.

        Returns:
            The last of these marks, 0 for none; and whether there may be more.
        """
        marks = f"live.{self._columns.marks}"
        with self._lock:
            if not self._is_open:
                return 0, False
            oldest = f"SELECT mark FROM {marks} ORDER BY mark LIMIT {MARKS_AT_ONCE}"
            with self._connection:
                [(count, last)] = self._all(f"SELECT COUNT(*), MAX(mark) FROM ({oldest})")
                parts = f"SELECT DISTINCT bucket >> {PART_BITS} FROM {marks} WHERE mark <= ?"
                for (part,) in self._all(parts, (last,)):
                    first, end = _buckets_of(part)
                    self._add(
                        part,
                        f"SELECT DISTINCT bucket FROM {marks}"
                        " WHERE mark <= ? AND bucket BETWEEN ? AND ? ORDER BY bucket",
                        (last, first, end),
                    )
            self.used_bytes = self._count_bytes()
        return last or 0, count == MARKS_AT_ONCE

    def renew_some(self, now_us: int) -> bool:
        """Makes one part anew whose rows have mostly been removed; False where there is none."""
        with self._lock:
            if not self._is_open:
                return False
            parts = self._all("SELECT number, renewed_us FROM parts ORDER BY number")
            for part, renewed_us in parts:
                end_us = (part + 1) << (PART_BITS + BUCKET_BITS)
                is_trimmed = end_us <= self._trimmed_us and part not in self._shrunk
                is_due = any(renewed_us < end_us + after <= now_us for after in _RENEWED_AFTER_US)
                if is_due or is_trimmed:
                    self._shrunk.add(part)
                    with self._connection:
                        self._renew(part, now_us)
                    self.used_bytes = self._count_bytes()
                    return True
        return False

    def close(self) -> None:
        """Closes the file, after what is written now."""
        with self._lock:
            self._is_open = False
            self._connection.close()

    # --- details ----------------------------------------------------------------------------------
    def _open(self) -> tuple[apsw.Connection, str]:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        connection = apsw.Connection(str(self.path), flags=flags)
        connection.set_busy_timeout(_BUSY_MS)
        connection.pragma("journal_mode", "wal")
        # A mark is removed from the other file afterwards: what it stands for must not be lost.
        connection.pragma("synchronous", "full")
        if not connection.pragma("user_version"):
            with connection:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute("INSERT INTO facts VALUES (?)", (secrets.token_hex(16),))
                connection.pragma("user_version", 1)
        connection.execute("ATTACH ? AS live", (_read_only(self._database),))
        [(identity,)] = connection.execute("SELECT id FROM facts").fetchall()
        return connection, str(identity)

    def _count_bytes(self) -> int:
        pages = self._connection.pragma("page_count") - self._connection.pragma("freelist_count")
        return int(pages * self._connection.pragma("page_size"))

    def _all(self, query: str, values: Sequence[int] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, values).fetchall()

    def _renew(self, part: int, now_us: int) -> None:
        self._connection.execute(f"DROP TABLE {part_name(part)}")
        self._connection.execute("DELETE FROM parts WHERE number = ?", (part,))
        first, end = _buckets_of(part)
        buckets = (
            f"SELECT DISTINCT {self._by} >> {BUCKET_BITS} AS bucket FROM live.{self._columns.table}"
            f" WHERE {self._by} BETWEEN ? AND ? ORDER BY 1"
        )
        times = (first << BUCKET_BITS, ((end + 1) << BUCKET_BITS) - 1)
        if self._all(f"{buckets} LIMIT 1", times):
            self._add(part, buckets, times, now_us)

    def _add(self, part: int, buckets: str, values: Sequence[int], renewed_us: int = 0) -> None:
        """Indexes the rows of some buckets: one statement, so that other threads run meanwhile."""
        name, table = part_name(part), self._columns.table
        if not self._all("SELECT 1 FROM parts WHERE number = ?", (part,)):
            self._connection.execute(
                f"CREATE VIRTUAL TABLE {name} USING fts5"
                "(body, tokenize='trigram', detail=none, content='', columnsize=0)"
            )
            self._connection.execute("INSERT INTO parts VALUES (?, ?)", (part, renewed_us))
        text = " || char(10) || ".join(self._columns.search.texts)  # type: ignore[union-attr]
        within = f"bucket << {BUCKET_BITS} AND ((bucket + 1) << {BUCKET_BITS}) - 1"
        self._connection.execute(
            f"INSERT INTO {name} (rowid, body)"
            # A NUL would end a text; and each bucket must be higher than the one before, since
            # FTS5 otherwise writes what it has gathered.
            f" SELECT bucket, group_concat(replace({text}, char(0), ' '), char(10))"
            f" FROM ({buckets}) CROSS JOIN live.{table} ON {self._by} BETWEEN {within}"
            " GROUP BY bucket ORDER BY bucket",
            values,
        )


def bounds(bucket: int) -> tuple[int, int]:
    """The first and the last microsecond of a bucket."""
    return bucket << BUCKET_BITS, ((bucket + 1) << BUCKET_BITS) - 1


def part_name(part: int) -> str:
    """The table of a part."""
    return f"texts_{part}"


def _buckets_of(part: int) -> tuple[int, int]:
    return part << PART_BITS, ((part + 1) << PART_BITS) - 1


def _read_only(path: Path) -> str:
    return f"{path.absolute().as_uri()}?mode=ro"
