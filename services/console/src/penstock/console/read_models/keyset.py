"""Pages of any table, newest first, that go on from a cursor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from penstock.console.core import cursors
from penstock.console.core.tables import Table
from penstock.console.parts import Console
from penstock.console.read_models.columns import SqlValue

Condition = tuple[str, tuple[SqlValue, ...]]
"""A condition of SQL, and the values of its marks."""
Row = TypeVar("Row", bound=msgspec.Struct)


async def page(
    console: Console,
    table: Table[Row],
    by: str,
    matching: Mapping[str, SqlValue],
    limit: int,
    cursor: str,
    also: Condition = ("", ()),
) -> tuple[list[Row], str]:
    """Rows, the newest first, and the cursor of the following page; empty where there is none.

    Args:
        console: its parts.
        table: which one; an index has ``by`` and the table's key.
        by: the column of the time that rows are ordered by.
        matching: values by column; those that are empty or None match any.
        limit: rows at most.
        cursor: of the page before; empty for the first one.
        also: a further condition of SQL; a cursor goes on where it has changed, too.

    Raises:
        BadCursor: it is not one of this list.
    """
    wanted = {name: value for name, value in matching.items() if value not in ("", None)}
    listing, sealing = f"{table.name} {sorted(wanted.items())}", console.store.cursor_key
    conditions = [f"{name} = ?" for name in wanted]
    values: list[SqlValue] = list(wanted.values())
    if also[0]:
        conditions.append(also[0])
        values += also[1]
    if cursor:
        conditions.append(f"({by}, {table.key}) < (?, ?)")
        values += cursors.decode(cursor, listing, sealing)
    condition = " AND ".join(conditions) or "1"
    tail = f"WHERE {condition} ORDER BY {by} DESC, {table.key} DESC LIMIT ?"
    rows = await console.read(lambda snapshot: snapshot.rows(table, tail, (*values, limit + 1)))
    shown = rows[:limit]
    if len(rows) <= limit:
        return shown, ""
    last = (getattr(shown[-1], by), getattr(shown[-1], table.key))
    return shown, cursors.encode(last, listing, sealing)
