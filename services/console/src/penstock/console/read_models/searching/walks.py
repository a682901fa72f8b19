"""Which index a list of jobs walks along, and what it looks at in each row on the way."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec

from penstock.console.core import tables
from penstock.console.core.job_query import STATES, JobQuery
from penstock.console.read_models.columns import SqlValue, index_name
from penstock.console.read_models.searching.arguments import TABLE as ARGUMENTS
from penstock.console.read_models.store import Snapshot

NARROW = 5_000
"""So many rows are looked at one by one within the time of an answer."""
_MOST_RANGES = 112
"""Of an index, which are merged: a function has one for each of its queues and each state."""

Condition = tuple[list[str], list[SqlValue]]
"""Conditions of SQL, all of which hold, and the values of their marks."""
_BY_INDEX = {
    "state": "state = ?",
    "queue": "queue = ?",
    "function": "function = ?",
    "failure": "fingerprint = ? AND state = 'dead'",
    "batch": "batch = ? AND batch != ''",
}
"""Those that an index answers; one of some rows only where its own condition is repeated."""
_HAS_ARGUMENT = (
    f"EXISTS (SELECT 1 FROM {ARGUMENTS} AS had"
    " WHERE had.item = ? AND had.at_us = dispatched_us AND had.row_key = id)"
)
_QUEUES_OF_FUNCTION = """
WITH RECURSIVE names(name) AS (
    SELECT MIN(queue) FROM jobs WHERE function = ?1
    UNION ALL
    SELECT (SELECT MIN(queue) FROM jobs WHERE function = ?1 AND queue > name) FROM names
    WHERE name IS NOT NULL
)
SELECT name FROM names WHERE name IS NOT NULL LIMIT ?2
"""
"""A look into the index for each, however many jobs there are."""


class Walk(NamedTuple):
    """Ranges of an index that hold the jobs of a query, each by time; they are merged.

    Attributes:
        source: table and index, as after FROM. The index is named: without statistics of the table
            SQLite takes one that holds the jobs of a window of time, whatever their queue.
        ranges: a condition for each.
        values: bound to each of them, in their order.
        names: fields of the query that the ranges answer.
        place: the columns of time and id in the index.
        join: from the index to the jobs, where it is not theirs.
    """

    source: str
    ranges: Sequence[str]
    values: Sequence[Sequence[SqlValue]]
    names: Collection[str]
    place: tuple[str, str] = ("dispatched_us", "id")
    join: str = ""

    def jobs(self, columns: str, conditions: Sequence[str]) -> str:
        """The query for the jobs that meet the conditions, newest first."""
        return self._select(columns, f"{self.source} {self.join}", conditions)

    def places(self, conditions: Sequence[str]) -> str:
        """The query for their times and ids, where the index alone decides."""
        return self._select(", ".join(self.place), self.source, conditions)

    def _select(self, columns: str, source: str, conditions: Sequence[str]) -> str:
        ranges = (
            f"SELECT {columns} FROM {source} WHERE {' AND '.join([one, *conditions])}"
            for one in self.ranges
        )
        time, key = self.place
        return f"{' UNION ALL '.join(ranges)} ORDER BY {time} DESC, {key} DESC"

    def bound(self, values: Sequence[SqlValue]) -> list[SqlValue]:
        """The values of a query in which these follow those of each range."""
        return [value for own in self.values for value in (*own, *values)]

    def is_narrow(self, rows: Snapshot) -> bool:
        """Whether it leads along few jobs. No more are counted than need be."""
        return self.counted(rows, NARROW + 1) <= NARROW

    def counted(self, rows: Snapshot, most: int) -> int:
        """How many jobs it leads along, by the index alone; ``most`` where there are more."""
        ranges = " UNION ALL ".join(f"SELECT 1 FROM {self.source} WHERE {r}" for r in self.ranges)
        query = f"SELECT COUNT(*) FROM (SELECT 1 FROM ({ranges}) LIMIT ?)"
        counted = rows.one(query, (*self.bound(()), most))
        return int(counted[0]) if counted else 0


def walk(rows: Snapshot, query: JobQuery, muted: Sequence[str] = ()) -> Walk:
    """The narrowest that there is; ``muted`` are the functions that are so."""
    along = _along_index(rows, query, muted)
    by_item = [_of_argument(one) for one in query.args]
    if query.tag and not {"failure", "batch"} & set(along.names):
        by_item.append(_of_tag(query.tag))
    for other in by_item:
        if other.is_narrow(rows) or not along.is_narrow(rows):
            along = other
    return along


def newest_of_queue(columns: str, queue: str) -> tuple[str, list[SqlValue]]:
    """A query for the jobs of a queue, newest first, and its values.

    Args:
        columns: those that are read; ``dispatched_us`` and ``id`` are read, too.
        queue: without the suffix of a priority.
    """
    along = _of_queue(queue, STATES)
    return along.jobs(f"{columns}, dispatched_us, id", []), along.bound(())


def conditions(query: JobQuery) -> tuple[Condition, Condition]:
    """What a filter asks for: by an index, and by looking at each row."""
    named = [name for name in _BY_INDEX if getattr(query, name)]
    values = [getattr(query, name) for name in named]
    return ([_BY_INDEX[name] for name in named], values), looked_at(query, _BY_INDEX)


def looked_at(query: JobQuery, walked: Collection[str], muted: Sequence[str] = ()) -> Condition:
    """Conditions for which rows are looked at one by one."""
    conditions: list[str] = []
    values: list[SqlValue] = []
    for name in ("state", "queue", "function", "host", "batch"):
        if (value := getattr(query, name)) and name not in walked:
            conditions.append(f"{name} = ?")
            values.append(value)
    if query.silenced and "silenced" not in walked:
        conditions.append(f"function IN ({', '.join('?' * len(muted))})")
        values += muted
    if query.tag and "tag" not in walked:
        # The text is looked for first, since reading it as JSON takes ten times as long.
        conditions.append(
            "instr(tags, ?) AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)"
        )
        values += [msgspec.json.encode(query.tag).decode(), query.tag]
    for one in query.args:
        conditions.append(_HAS_ARGUMENT)
        values.append(one)
    if query.error:
        conditions.append("(instr(lower(error_kind), ?) OR instr(lower(error_message), ?))")
        values += [query.error.lower()] * 2
    if query.text:
        parts = tables.JOBS.search.texts if tables.JOBS.search else ()
        conditions.append(f"({' OR '.join(f'instr(lower({part}), ?)' for part in parts)})")
        values += [query.text.lower()] * len(parts)
    return conditions, values


def by_time() -> Walk:
    """All jobs."""
    return Walk(_indexed(), ["1"], [()], ())


def _along_index(rows: Snapshot, query: JobQuery, muted: Sequence[str]) -> Walk:
    for name, index in (("failure", "jobs_dead_by_failure"), ("batch", "jobs_of_batches")):
        if value := getattr(query, name):
            return Walk(f"jobs INDEXED BY {index}", [_BY_INDEX[name]], [(value,)], {name})
    states = [query.state] if query.state else STATES
    if query.function:
        places = _places(rows, [query.function], query.queue, states)
        if len(places) <= _MOST_RANGES:
            return _of_functions(places, {"function", "queue", "state"})
    if query.queue:
        return _of_queue(query.queue, states)
    if muted and query.silenced and not query.function:
        places = _places(rows, muted, "", states)
        if len(places) <= _MOST_RANGES:
            return _of_functions(places, {"silenced", "queue", "state"})
    if query.state:
        return Walk(_indexed("state"), ["state = ?"], [(query.state,)], {"state"})
    return by_time()


def _queues_of(rows: Snapshot, function: str) -> list[str]:
    queues = rows.all(_QUEUES_OF_FUNCTION, (function, _MOST_RANGES))
    return [str(queue) for (queue,) in queues] or [""]


def _places(
    rows: Snapshot, functions: Sequence[str], queue: str, states: Sequence[str]
) -> list[tuple[str, str, str]]:
    """Function, queue and state of each range that holds the jobs of some functions."""
    return [
        (function, one, state)
        for function in functions[:_MOST_RANGES]
        for one in ([queue] if queue else _queues_of(rows, function))
        for state in states
    ]


def _of_functions(places: Sequence[tuple[str, str, str]], names: Collection[str]) -> Walk:
    condition = "function = ? AND queue = ? AND state = ?"
    ranges = [condition] * len(places)
    return Walk(_indexed("function", "queue", "state"), ranges, places, names)


def _of_queue(queue: str, states: Sequence[str]) -> Walk:
    ranges = ["queue = ? AND state = ?"] * len(states)
    places = [(queue, state) for state in states]
    return Walk(_indexed("queue", "state"), ranges, places, {"queue", "state"})


def _of_tag(tag: str) -> Walk:
    join = "CROSS JOIN jobs ON id = row_key"
    return Walk("jobs_by_item", ["item = ?"], [(tag,)], {"tag"}, ("at_us", "row_key"), join)


def _of_argument(item: str) -> Walk:
    join = "CROSS JOIN jobs ON id = row_key"
    return Walk(ARGUMENTS, ["item = ?"], [(item,)], (), ("at_us", "row_key"), join)


def _indexed(*columns: str) -> str:
    return f"jobs INDEXED BY {index_name('jobs', (*columns, 'dispatched_us', 'id'))}"
