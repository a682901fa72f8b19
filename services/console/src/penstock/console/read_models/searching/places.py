"""Where rows are found by their texts, stored in the transaction that stores the rows."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

import apsw

from penstock.console.core.folding import Rows
from penstock.console.core.tables import Search
from penstock.console.read_models.columns import Columns, SqlValue
from penstock.console.read_models.searching.text_index import BUCKET_BITS


def store_places(
    writer: apsw.Connection, columns: Columns[Any], search: Search, rows: Rows, before: Rows
) -> None:
    """Stores under which items rows are found, and marks those that the text index lacks.

    Args:
        writer: within a transaction.
        columns: of the table.
        search: how its rows are found.
        rows: as they are now.
        before: as they were.
    """
    _store_items(writer, columns, search, rows, before)
    buckets = _buckets(search, rows, before)
    statement = f"INSERT INTO {columns.marks} (bucket) VALUES (?)"
    writer.executemany(statement, [(bucket,) for bucket in sorted(buckets)])


def _store_items(
    writer: apsw.Connection, columns: Columns[Any], search: Search, rows: Rows, before: Rows
) -> None:
    items_of, time_of = attrgetter(search.items), attrgetter(search.by)
    added: list[tuple[SqlValue, ...]] = []
    removed: list[tuple[SqlValue, ...]] = []
    for key, row in rows.items():
        former = before.get(key)
        items = items_of(row) if row is not None else ()
        former_items = items_of(former) if former is not None else ()
        if items != former_items:  # the time stays: the same items are at the same places
            removed += [(item, time_of(former), key) for item in former_items]
            added += [(item, time_of(row), key) for item in items]
    place = "item = ? AND at_us = ? AND row_key = ?"
    writer.executemany(f"DELETE FROM {columns.items} WHERE {place}", removed)
    writer.executemany(f"INSERT OR REPLACE INTO {columns.items} VALUES (?, ?, ?)", added)


def _buckets(search: Search, rows: Rows, before: Rows) -> set[int]:
    """Those of rows with other texts. A row that lost one is still found by it, and looked at."""
    texts_of, time_of = attrgetter(*search.texts), attrgetter(search.by)
    return {
        time_of(row) >> BUCKET_BITS
        for key, row in rows.items()
        if row is not None
        and ((former := before.get(key)) is None or texts_of(row) != texts_of(former))
    }
