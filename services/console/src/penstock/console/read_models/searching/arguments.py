"""By which arguments jobs are found: a table beside that of the jobs, in the same transactions.

Only where the settings name arguments does the fold look into calls at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import apsw

from penstock.console.core.folding import Rows
from penstock.console.core.job_rows import JobRow
from penstock.console.core.log_entry import LogEntry
from penstock.console.core.searchable_arguments import call_of, item, items
from penstock.jobs.payloads.call_digest import call_digest

if TYPE_CHECKING:
    from penstock.console.read_models.store import Snapshot

TABLE = "jobs_by_argument"
SCHEMA = (
    f"CREATE TABLE IF NOT EXISTS {TABLE} (item TEXT, at_us INTEGER, row_key TEXT,"
    " PRIMARY KEY (item, at_us, row_key)) WITHOUT ROWID",
    f"CREATE INDEX IF NOT EXISTS {TABLE}_by_job ON {TABLE} (row_key)",
)
"""Made where it is missing, also in a database of a former version."""
_REMOVE = f"DELETE FROM {TABLE} WHERE row_key = ?"
_SUGGESTED = f"""
WITH RECURSIVE items(item) AS (
    SELECT MIN(item) FROM {TABLE} WHERE item >= ?1
    UNION ALL
    SELECT (SELECT MIN(item) FROM {TABLE} WHERE item > items.item) FROM items
    WHERE items.item IS NOT NULL AND substr(items.item, 1, length(?1)) = ?1
)
SELECT substr(item, ?2) FROM items
WHERE item IS NOT NULL AND substr(item, 1, length(?1)) = ?1 LIMIT ?3
"""
"""A look into the table for each value, however many jobs have it."""


def store_items(
    writer: apsw.Connection,
    log: Iterable[LogEntry],
    jobs: Rows,
    searched: Sequence[str],
) -> None:
    """Stores the items of the jobs that a stretch of the log gives a call.

    Args:
        writer: within the transaction that stores the rows.
        log: the stretch.
        jobs: those that it concerns, as they are after it.
        searched: the arguments.
    """
    changed: list[tuple[str]] = []
    added: list[tuple[str, int, str]] = []
    # Of several calls of a job the row has that of the last event which was valid.
    for key, call in {(entry.key, call) for entry in log if (call := call_of(entry))}:
        row = jobs.get(key)
        if isinstance(row, JobRow) and row.call == call_digest(call):
            changed.append((key,))
            added += [(item, row.dispatched_us, key) for item in items(call, searched)]
    writer.executemany(_REMOVE, changed)
    writer.executemany(f"INSERT OR REPLACE INTO {TABLE} VALUES (?, ?, ?)", added)


def remove_items(writer: apsw.Connection, keys: Sequence[tuple[str]]) -> None:
    """Removes the items of jobs, within the transaction that removes their rows."""
    writer.executemany(_REMOVE, keys)


def suggested(rows: Snapshot, name: str, prefix: str, most: int) -> list[str]:
    """Values of an argument that begin so.

    Args:
        rows: the database.
        name: of the argument.
        prefix: of the values.
        most: values.
    """
    begins = item(name, prefix)
    values = rows.all(_SUGGESTED, (begins, len(item(name, "")) + 1, most))
    return [str(value) for (value,) in values]
