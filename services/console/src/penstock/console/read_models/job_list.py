"""Lists of jobs: any filter, newest first, within a bounded time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec

from penstock.console.core import tables
from penstock.console.core.job_query import JobQuery
from penstock.console.core.job_rows import JobRow
from penstock.console.read_models.columns import SqlValue
from penstock.console.read_models.searching.candidates import buckets
from penstock.console.read_models.searching.text_index import bounds
from penstock.console.read_models.searching.walks import Condition, Walk, by_time, looked_at, walk
from penstock.console.read_models.store import Snapshot

SEARCH_SECONDS = 0.15
"""A search that takes longer returns what it has found, and how far back it looked."""
_WINDOW = 5_000
"""Rows that are looked at between two looks at the clock."""
Position = tuple[int, str]
"""Time of dispatch in microseconds, and id: the order of the list."""
_NEWEST: Position = (2**62, "")


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list.

    Attributes:
        jobs: newest first.
        next_from: where the following page begins; None where there is none.
        is_complete: whether the page is full or the list ends with it; False where the search took
            too long.
        searched_until_us: of the oldest job that was looked at.
    """

    jobs: list[JobRow]
    next_from: Position | None
    is_complete: bool
    searched_until_us: int | None


def page(
    rows: Snapshot,
    query: JobQuery,
    limit: int,
    after: Position | None = None,
    muted: tuple[str, ...] = (),
) -> JobPage:
    """Jobs that match, after a position in the list; ``muted`` are the functions that are so."""
    if query.silenced and not muted:
        return JobPage(jobs=[], next_from=None, is_complete=True, searched_until_us=None)
    deadline = time.monotonic() + SEARCH_SECONDS
    along = walk(rows, query, muted)
    texts = [text.lower() for text in (query.text, query.error) if text]
    if texts and not along.is_narrow(rows):
        newest_us = after[0] if after else _NEWEST[0]
        candidates = buckets(rows, rows.columns(tables.JOBS), texts, newest_us)
        if candidates is not None:
            everything = looked_at(query, (), muted)
            return _by_texts(rows, everything, limit, after or _NEWEST, candidates, deadline)
    searched = looked_at(query, along.names, muted)
    return _by_walk(rows, along, searched, limit, after, deadline)


def _by_walk(
    rows: Snapshot,
    along: Walk,
    conditions: Condition,
    limit: int,
    after: Position | None,
    deadline: float,
) -> JobPage:
    """Along an index; where rows are looked at one by one, a window at a time."""
    searched, searched_values = conditions
    place = ", ".join(along.place)
    jobs: list[JobRow] = []
    position = after
    while True:
        start = [f"({place}) < (?, ?)"] if position else []
        values: tuple[SqlValue, ...] = position or ()
        end: Position | None = None
        if searched:
            last = rows.one(
                f"{along.places(start)} LIMIT 1 OFFSET ?", (*along.bound(values), _WINDOW - 1)
            )
            end = (int(last[0]), str(last[1])) if last else None
        lower = [f"({place}) >= (?, ?)"] if end else []
        bound = along.bound((*values, *(end or ()), *searched_values))
        jobs += rows.chosen(
            tables.JOBS,
            f"{along.jobs('jobs.*', [*start, *lower, *searched])} LIMIT ?",
            (*bound, limit + 1 - len(jobs)),
        )
        if len(jobs) > limit:
            return _full(jobs[:limit])
        if end is None:
            return JobPage(jobs=jobs, next_from=None, is_complete=True, searched_until_us=None)
        position = end
        if time.monotonic() > deadline:
            return _page(jobs, position, is_complete=False)


def _by_texts(
    rows: Snapshot,
    conditions: Condition,
    limit: int,
    position: Position,
    candidates: Iterator[int],
    deadline: float,
) -> JobPage:
    """The rows of the buckets that the index of texts names."""
    searched, values = conditions
    jobs_within = by_time().jobs(
        "jobs.*",
        ["dispatched_us BETWEEN ? AND ?", "(+dispatched_us, +id) < (?, ?)", *searched],
    )
    jobs: list[JobRow] = []
    for bucket in candidates:
        first, last = bounds(bucket)
        bound = (first, last, *position, *values, limit + 1 - len(jobs))
        jobs += rows.chosen(tables.JOBS, f"{jobs_within} LIMIT ?", bound)
        if len(jobs) > limit:
            return _full(jobs[:limit])
        if time.monotonic() > deadline:
            return _page(jobs, (first, ""), is_complete=False)
    return JobPage(jobs=jobs, next_from=None, is_complete=True, searched_until_us=None)


def _full(jobs: list[JobRow]) -> JobPage:
    return _page(jobs, (jobs[-1].dispatched_us, jobs[-1].id), is_complete=True)


def _page(jobs: list[JobRow], next_from: Position, *, is_complete: bool) -> JobPage:
    return JobPage(
        jobs=jobs, next_from=next_from, is_complete=is_complete, searched_until_us=next_from[0]
    )
