"""The tables of the read models: each folds some events into one row for each key. Pure.

A new table is one module beside this one with a row and its fold, and one entry in ``TABLES``.
Storage (:mod:`penstock.console.read_models.store`) makes its columns from the fields of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from penstock.console.core import (
    batch_rows,
    decision_rows,
    failure_rows,
    graph_rows,
    job_rows,
    mark_rows,
    queue_rows,
)
from penstock.console.core.log_entry import LogEntry
from penstock.events.batch import BatchEvent
from penstock.events.graph import GraphEvent
from penstock.events.job import JobEvent
from penstock.events.queue import QueueEvent
from penstock.events.scaling import PoolEvent
from penstock.events.worker import HostEvent

Row = TypeVar("Row", bound=msgspec.Struct)


_DAY_SECONDS = 86_400.0
MOST_DONE_ROWS = 20_000_000
"""Finished jobs at most; with their indexes a job takes some 480 bytes."""


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Rows that are removed after a time.

    Attributes:
        column: since when, in microseconds; rows where it is None stay.
        seconds: how long they are kept.
        where: a condition of SQL on further columns; empty for all rows.
        most: rows at most, of which the oldest go first; they also go where the database is too
            large. 0 for no bound.
        states: of counted rows that the condition means, where there is such a bound.
    """

    column: str
    seconds: float
    where: str = ""
    most: int = 0
    states: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Search:
    """How rows are found by texts that they hold, in the order of a time.

    Attributes:
        by: column of that time, in microseconds; a row keeps it.
        items: a field of many texts: rows are found by each of them, whole.
        texts: fields of which any part is searched.
    """

    by: str
    items: str
    texts: tuple[str, ...]


def _own_key(entry: LogEntry) -> str | None:
    return entry.key


@dataclass(frozen=True, kw_only=True)
class Table(Generic[Row]):
    """One table.

    Attributes:
        name: in the database.
        row: type of its rows, made of stored values by position: fields of ``str``, an enum of
            it, ``int``, ``float`` or ``bool``, or None for unknown; tuples of text are stored as
            JSON.
        key: name of the field that identifies a row.
        noun: of the events of its concern.
        advance: the row after an entry; None for no row. It must not depend on anything else, so
            that folding gives the same rows however the log is cut into batches.
        key_of: the row that an entry of this noun belongs to, None for one of no concern; by
            default that of the aggregate.
        indexes: columns of each index.
        partial_indexes: by name, columns and the condition of SQL that rows of the index meet.
        counted: the group that a row is counted in, as (group, state); None for tables that are
            not counted.
        retention: which rows are removed, and when; none for a table whose rows stay.
        search: how rows are found by texts; None for a table whose rows are not.
    """

    name: str
    row: type[Row]
    key: str
    noun: str
    advance: Callable[[Row | None, LogEntry], Row | None]
    key_of: Callable[[LogEntry], str | None] = _own_key
    indexes: tuple[tuple[str, ...], ...] = ()
    partial_indexes: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    counted: Callable[[Row], tuple[str, str]] | None = None
    retention: tuple[Retention, ...] = ()
    search: Search | None = None


JOBS = Table(
    name="jobs",
    row=job_rows.JobRow,
    key="id",
    noun=JobEvent.noun,
    advance=job_rows.advance,
    indexes=(
        ("dispatched_us", "id"),
        ("state", "dispatched_us", "id"),
        ("queue", "state", "dispatched_us", "id"),
        ("function", "queue", "state", "dispatched_us", "id"),
    ),
    partial_indexes={
        "workflows": (("dispatched_us", "id"), "kind = 'workflow'"),
        "done_by_end": (("finished_us",), "state IN ('completed', 'cancelled')"),
        "dead_by_end": (("finished_us",), "state = 'dead'"),
        "dead_by_failure": (
            ("fingerprint", "dispatched_us", "id", "finished_us"),
            "state = 'dead'",
        ),
        "of_batches": (("batch", "dispatched_us", "id"), "batch != ''"),
    },
    counted=job_rows.counted,
    retention=(
        Retention(
            column="finished_us",
            seconds=_DAY_SECONDS,
            where="state IN ('completed', 'cancelled')",
            most=MOST_DONE_ROWS,
            states=("completed", "cancelled"),
        ),
        Retention(column="finished_us", seconds=14 * _DAY_SECONDS, where="state = 'dead'"),
    ),
    search=Search(
        by="dispatched_us",
        items="tags",
        texts=("id", "function", "tags", "error_kind", "error_message"),
    ),
)
DECISIONS = Table(
    name="decisions",
    row=decision_rows.DecisionRow,
    key="id",
    noun=PoolEvent.noun,
    advance=decision_rows.advance,
    key_of=decision_rows.key_of,
    indexes=(("sequence",), ("pool", "sequence"), ("is_change", "sequence"), ("at_us",)),
    retention=(
        Retention(column="at_us", seconds=_DAY_SECONDS, where="NOT is_change"),
        Retention(column="at_us", seconds=14 * _DAY_SECONDS),
    ),
)
BREACHES = Table(
    name="breaches",
    row=mark_rows.MarkRow,
    key="id",
    noun=PoolEvent.noun,
    advance=mark_rows.advance,
    key_of=mark_rows.key_of,
    indexes=(("at_us",),),
    retention=(Retention(column="at_us", seconds=14 * _DAY_SECONDS),),
)
HOST_CHANGES = Table(
    name="host_changes",
    row=mark_rows.MarkRow,
    key="id",
    noun=HostEvent.noun,
    advance=mark_rows.advance,
    key_of=mark_rows.key_of,
    indexes=(("at_us",),),
    retention=(Retention(column="at_us", seconds=14 * _DAY_SECONDS),),
)
QUEUES = Table(
    name="queues",
    row=queue_rows.QueueStateRow,
    key="queue",
    noun=QueueEvent.noun,
    advance=queue_rows.advance,
    key_of=queue_rows.key_of,
)
BATCHES = Table(
    name="batches",
    row=batch_rows.BatchRow,
    key="id",
    noun=BatchEvent.noun,
    advance=batch_rows.advance,
    indexes=(("created_us", "id"), ("state", "created_us", "id"), ("ended_us",)),
    counted=batch_rows.counted,
    retention=(Retention(column="ended_us", seconds=14 * _DAY_SECONDS),),
)
GRAPHS = Table(
    name="graphs",
    row=graph_rows.GraphRow,
    key="id",
    noun=GraphEvent.noun,
    advance=graph_rows.advance,
    indexes=(("created_us", "id"), ("state", "created_us", "id"), ("ended_us",)),
    counted=graph_rows.counted,
    retention=(Retention(column="ended_us", seconds=14 * _DAY_SECONDS),),
)
FAILURES = Table(
    name="failures",
    row=failure_rows.FailureRow,
    key="fingerprint",
    noun=JobEvent.noun,
    advance=failure_rows.advance,
    key_of=failure_rows.key_of,
    indexes=(("last_us", "fingerprint"),),
    retention=(Retention(column="last_us", seconds=14 * _DAY_SECONDS),),
)
TABLES: tuple[Table[msgspec.Struct], ...] = (  # type: ignore[assignment]
    *(JOBS, DECISIONS, BREACHES, HOST_CHANGES),
    *(QUEUES, BATCHES, GRAPHS, FAILURES),
)
