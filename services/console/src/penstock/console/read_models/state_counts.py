"""How many jobs of a filter are in each state, as far as that is quickly known."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from penstock.console.core import tables
from penstock.console.core.job_query import STATES, JobQuery
from penstock.console.read_models.searching.walks import Condition, Walk, looked_at, walk
from penstock.console.read_models.store import Snapshot

COUNTED_MOST = 10_000
"""More are shown as "10,000+"."""
COUNT_SECONDS = 0.05
"""Counting stops after so long; what was not counted by then has no number."""

StateCounts = dict[str, int | None]
"""By state; None where it is not known, ``COUNTED_MOST + 1`` where there are more."""


def state_counts(rows: Snapshot, query: JobQuery, muted: tuple[str, ...] = ()) -> StateCounts:
    """Jobs in each state that match the other parts of a filter.

    Args:
        rows: of one moment.
        query: its state is passed over.
        muted: functions that are so.
    """
    query = msgspec.structs.replace(query, state="")
    others = {name for name in query.__struct_fields__ if getattr(query, name)}
    if others <= {"queue"}:
        return _as_folded(rows, query.queue)
    if query.silenced and not muted:
        return dict.fromkeys(STATES, 0)
    along = walk(rows, query, muted)
    conditions = looked_at(query, along.names, muted)
    if not conditions[0] and "state" in along.names:
        return _along_index(rows, query, muted)
    if along.is_narrow(rows):
        return _among_few(rows, along, conditions)
    return dict.fromkeys(STATES)


def _as_folded(rows: Snapshot, wanted: str) -> StateCounts:
    """Exact, by the counters that are folded with the events."""
    by_state: StateCounts = dict.fromkeys(STATES, 0)
    for (queue, state), number in rows.counts(tables.JOBS).items():
        if wanted in ("", queue):
            by_state[state] = (by_state.get(state) or 0) + number
    return by_state


def _along_index(rows: Snapshot, query: JobQuery, muted: Sequence[str]) -> StateCounts:
    """Each state along an index that has it, up to a bound and for a time."""
    by_state: StateCounts = dict.fromkeys(STATES)
    deadline = time.monotonic() + COUNT_SECONDS
    for state in STATES:
        if time.monotonic() > deadline:
            break
        along = walk(rows, msgspec.structs.replace(query, state=state), muted)
        by_state[state] = along.counted(rows, COUNTED_MOST + 1)
    return by_state


def _among_few(rows: Snapshot, along: Walk, conditions: Condition) -> StateCounts:
    """By looking at each of them."""
    wanted, values = conditions
    jobs = along.jobs(f"state, {', '.join(along.place)}", wanted)
    grouped = rows.all(f"SELECT state, COUNT(*) FROM ({jobs}) GROUP BY state", along.bound(values))
    by_state: StateCounts = dict.fromkeys(STATES, 0)
    return by_state | {str(state): int(number) for state, number in grouped}
