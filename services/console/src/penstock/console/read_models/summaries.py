"""What the newest jobs and graphs have in common: tags, functions, run times, shapes.

Each looks at a bounded number of rows: a count over all of them would take too long.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.console.core.job_query import STATES
from penstock.console.core.times import instant
from penstock.console.read_models.columns import SqlValue, index_name
from penstock.console.read_models.searching.walks import newest_of_queue
from penstock.console.read_models.store import Snapshot

_MOST_JOBS = 20_000
_MOST_GRAPHS = 20_000
_MOST_OF_POOL = 10_000
_MOST_QUEUES = 100
_MOST_PICKUPS = 5_000
OUTCOME_SECONDS = 60
"""What came of a decision is measured by the jobs of the time after it."""


class TagItem(msgspec.Struct, frozen=True, kw_only=True):
    """A tag, and how many of the newest 20,000 jobs have it."""

    tag: str
    jobs: int
    dead: int


def tag_items(rows: Snapshot) -> list[TagItem]:
    """The most frequent first."""
    newest = f"SELECT tags, state FROM jobs ORDER BY dispatched_us DESC LIMIT {_MOST_JOBS}"
    counted = rows.all(
        f"SELECT value, COUNT(*), SUM(state = 'dead') FROM ({newest}), json_each(tags)"
        " GROUP BY value ORDER BY 2 DESC, 1 LIMIT 500"
    )
    return [TagItem(tag=tag, jobs=jobs, dead=dead) for tag, jobs, dead in counted]


class FunctionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A function among the newest 10,000 jobs of a pool, as many of each of its queues.

    Attributes:
        run_seconds: mean of those that ended; None where none has.
    """

    function: str
    jobs: int
    waiting: int
    running: int
    dead: int
    run_seconds: float | None


def functions(rows: Snapshot, queues: list[str]) -> list[FunctionItem]:
    """Functions of the newest jobs of some queues, the most frequent first."""
    listed = queues[:_MOST_QUEUES]
    parts: list[str] = []
    values: list[SqlValue] = []
    for queue in listed:
        newest, bound = newest_of_queue("function, state, run_seconds", queue)
        parts.append(f"SELECT * FROM ({newest} LIMIT ?)")
        values += [*bound, _MOST_OF_POOL // len(listed)]
    if not parts:
        return []
    counted = rows.all(
        "SELECT function, COUNT(*), SUM(state = 'waiting'), SUM(state = 'running'),"
        f" SUM(state = 'dead'), AVG(run_seconds) FROM ({' UNION ALL '.join(parts)})"
        " GROUP BY function ORDER BY 2 DESC, 1 LIMIT 500",
        values,
    )
    names = FunctionItem.__struct_fields__
    return [FunctionItem(**dict(zip(names, values, strict=True))) for values in counted]


class FunctionCost(msgspec.Struct, frozen=True, kw_only=True):
    """Run time of a function's jobs, among the newest 20,000 that completed."""

    function: str
    jobs: int
    run_seconds: float


def function_costs(rows: Snapshot) -> list[FunctionCost]:
    """Those that ran longest first."""
    newest = (
        "SELECT function, run_seconds FROM jobs WHERE state = 'completed'"
        f" ORDER BY dispatched_us DESC LIMIT {_MOST_JOBS}"
    )
    counted = rows.all(
        f"SELECT function, COUNT(*), TOTAL(run_seconds) FROM ({newest})"
        " GROUP BY function ORDER BY 3 DESC, 1 LIMIT 500"
    )
    names = FunctionCost.__struct_fields__
    return [FunctionCost(**dict(zip(names, values, strict=True))) for values in counted]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """Graphs of one definition, or of one title, among the newest 20,000.

    Attributes:
        mean_seconds: from creation to end; None where none has completed.
    """

    name: str
    is_definition: bool
    graphs: int
    running: int
    completed: int
    failed: int
    cancelled: int
    mean_seconds: float | None
    last_at: datetime


def shapes(rows: Snapshot) -> list[Shape]:
    """Definitions and titles of the newest graphs, the most frequent first."""
    newest = f"SELECT * FROM graphs ORDER BY created_us DESC LIMIT {_MOST_GRAPHS}"
    counted = rows.all(
        "SELECT COALESCE(NULLIF(definition, ''), title), definition != '', COUNT(*),"
        " SUM(state = 'running'), SUM(state = 'completed'), SUM(state = 'failed'),"
        " SUM(state = 'cancelled'),"
        " AVG(CASE WHEN state = 'completed' THEN (ended_us - created_us) / 1e6 END),"
        f" MAX(created_us) FROM ({newest}) GROUP BY 1, 2 ORDER BY 3 DESC, 1 LIMIT 500"
    )
    return [
        Shape(
            name=name,
            is_definition=bool(is_definition),
            graphs=graphs,
            running=running,
            completed=completed,
            failed=failed,
            cancelled=cancelled,
            mean_seconds=mean,
            last_at=instant(last_us),
        )
        for name, is_definition, graphs, running, completed, failed, cancelled, mean, last_us in (
            counted
        )
    ]


def pickups(rows: Snapshot, queues: list[str], since_us: int) -> list[float]:
    """Pickup times of jobs that were dispatched within the following minute, the shortest first."""
    marks, states = ", ".join("?" * len(queues)), ", ".join("?" * len(STATES))
    index = index_name("jobs", ("queue", "state", "dispatched_us", "id"))
    started = rows.all(
        f"SELECT pickup_seconds FROM jobs INDEXED BY {index}"
        f" WHERE queue IN ({marks}) AND state IN ({states}) AND dispatched_us >= ?"
        f" AND dispatched_us < ? AND pickup_seconds IS NOT NULL LIMIT {_MOST_PICKUPS}",
        (*queues, *STATES, since_us, since_us + OUTCOME_SECONDS * 1_000_000),
    )
    return sorted(seconds for (seconds,) in started)
