"""The set that a bulk action is for: counted for its preview, gone through while it runs.

A set is chosen as of one event of the log, its position. What matched then and has not changed
since is in it, and what runs and ran then already; nothing that comes later is. So a set only
shrinks, and needs no list of its own.
"""

from __future__ import annotations

import time
from datetime import datetime
from typing import Any

import msgspec

from penstock.console.core import tables
from penstock.console.core.bulk.actions import Position
from penstock.console.core.bulk.verbs import Selection
from penstock.console.core.job_rows import JobRow
from penstock.console.core.tables import Table
from penstock.console.read_models.columns import SqlValue
from penstock.console.read_models.searching.walks import conditions
from penstock.console.read_models.store import Snapshot

MOST_GROUPS = 50
_SAMPLE = 10
_TABLES: dict[str, tuple[Table[Any], str]] = {
    "jobs": (tables.JOBS, "dispatched_us"),
    "workflows": (tables.JOBS, "dispatched_us"),
    "batches": (tables.BATCHES, "created_us"),
    "graphs": (tables.GRAPHS, "created_us"),
}
"""Where each target's rows are, and the time by which they are ordered."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """As of when a set is chosen.

    Attributes:
        position: event of the log.
        at: when it was stored.
    """

    position: int
    at: datetime


class GroupCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many there are of one queue and function; of batches and graphs, in one state."""

    queue: str
    function: str
    state: str
    count: int


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One that would be acted on; of batches and graphs ``function`` is the title."""

    id: str
    state: str
    queue: str
    function: str
    error: str


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """A set, counted.

    Attributes:
        groups: the largest, at most 50.
        examples: the newest ten.
        seconds: that the count took.
    """

    count: int
    groups: list[GroupCount]
    examples: list[Example]
    seconds: float


def count(rows: Snapshot, chosen: Selection, moment: Moment) -> Counted:
    """How many there are, which, and of what kinds."""
    began = time.monotonic()
    table, _ = _TABLES[chosen.target]
    where, values = _where(chosen, moment)
    kinds = "queue, function, state" if table is tables.JOBS else "'', '', state"
    counted = rows.all(
        f"SELECT {kinds}, COUNT(*) FROM {table.name} WHERE {where} GROUP BY 1, 2, 3", values
    )
    groups = [
        GroupCount(queue=str(queue), function=str(function), state=str(state), count=int(number))
        for queue, function, state, number in counted
    ]
    groups.sort(key=lambda group: -group.count)
    newest = part(rows, chosen, moment, None, _SAMPLE) if groups else []
    return Counted(
        count=sum(group.count for group in groups),
        groups=groups[:MOST_GROUPS],
        examples=[_example(row) for row, _ in newest],
        seconds=time.monotonic() - began,
    )


def part(
    rows: Snapshot, chosen: Selection, moment: Moment, after: Position | None, limit: int
) -> list[tuple[Any, Position]]:
    """The next rows of a set, newest first, each with its place in the order.

    Args:
        after: the place of the last one that was gone through; None for the first ones.
        limit: rows at most.
    """
    table, by = _TABLES[chosen.target]
    where, values = _where(chosen, moment, by_time=len(chosen.states) > 1)
    if after is not None:
        where, values = f"{where} AND ({by}, {table.key}) < (?, ?)", [*values, *after]
    tail = f"WHERE {where} ORDER BY {by} DESC, {table.key} DESC LIMIT ?"
    page = rows.rows(table, tail, [*values, limit])
    return [(row, (getattr(row, by), str(getattr(row, table.key)))) for row in page]


def _where(
    chosen: Selection, moment: Moment, *, by_time: bool = False
) -> tuple[str, list[SqlValue]]:
    """The condition of SQL. ``by_time``: the rows are read in the order of an index of times.

    A unary plus keeps SQLite from another index, whose rows it would have to sort for each part.
    """
    plus = "+" if by_time else ""
    table, _ = _TABLES[chosen.target]
    marks = ", ".join("?" * len(chosen.states))
    where, values = [f"{plus}state IN ({marks})"], list[SqlValue](chosen.states)
    if table is tables.JOBS:
        others = msgspec.structs.replace(chosen.query, state="")
        indexed, searched = conditions(others)
        for texts, bound, sign in ((*indexed, plus), (*searched, "")):
            where += [f"{sign}{text}" for text in texts]
            values += bound
        if chosen.target == "workflows":
            where.append("kind = 'workflow'")
        if chosen.queues is not None:
            where.append(f"queue IN ({', '.join('?' * len(chosen.queues))})")
            values += chosen.queues
    if chosen.ids:
        where.append(f"{table.key} IN ({', '.join('?' * len(chosen.ids))})")
        values += chosen.ids
    where.append(f"({_in_set(chosen)})")
    micros = round(moment.at.timestamp() * 1_000_000)
    values += [moment.position, micros]
    return " AND ".join(where), values


def _in_set(chosen: Selection) -> str:
    """Chosen as of that event. What has not ended stores events all the time: its age decides."""
    if chosen.target == "jobs" and chosen.names_state:
        return "sequence <= ? OR (state = 'running' AND started_us <= ?)"
    table, by = _TABLES[chosen.target]
    end = "finished_us" if table is tables.JOBS else "ended_us"
    return f"sequence <= ? OR ({end} IS NULL AND {by} <= ?)"


def _example(row: Any) -> Example:
    if isinstance(row, JobRow):
        error = f"{row.error_kind}: {row.error_message}" if row.error_kind else ""
        return Example(
            id=row.id, state=row.state.value, queue=row.queue, function=row.function, error=error
        )
    title = getattr(row, "title", "") or getattr(row, "definition", "")
    return Example(id=row.id, state=row.state.value, queue="", function=title, error="")
