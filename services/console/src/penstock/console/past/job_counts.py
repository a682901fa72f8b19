"""How many jobs were in each state after an event: the counts kept before it, and what followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import msgspec

from penstock.bus import bounded
from penstock.bus.protocol import Bus, Stored
from penstock.console.core import folding, tables
from penstock.console.core.job_rows import JobRow
from penstock.console.core.log_entry import LogEntry
from penstock.console.read_models.log_batches import entry
from penstock.console.read_models.store import Snapshot
from penstock.events.job import JobDispatched, JobEvent
from penstock.events.subjects import Subjects
from penstock.jobs.event_store import event_log

MOST_EVENTS = 2_000
"""Events that are read beyond the counts that were kept."""
MOST_JOBS = 200
"""Jobs whose own events are read, for the state that they came from."""
_JOBS_AT_ONCE = 6
_BEGINNING = datetime.fromtimestamp(0, UTC)
Counts = Mapping[tuple[str, str], int]


class JobCounts(msgspec.Struct, frozen=True):
    """Jobs by (queue, state).

    Attributes:
        counts: as the event log adds up.
        until: when the last event that they count was stored; None where none are known.
        is_exact: whether they hold for the very event that was asked for.
    """

    counts: Counts
    until: datetime | None
    is_exact: bool


class Kept(msgspec.Struct, frozen=True):
    """Counts as they were kept, up to an event."""

    position: int
    at: datetime
    counts: Counts


def kept_counts(rows: Snapshot, position: int) -> Kept | None:
    """The last counts up to an event, as a query of the database; None where none are kept."""
    if rows.position == position and (as_of := rows.fact("as_of")):
        return Kept(position, datetime.fromisoformat(as_of), rows.counts(tables.JOBS))
    point = rows.count_point(position)
    if point is not None:
        return Kept(point.position, point.at, point.counts)
    return Kept(0, _BEGINNING, {}) if not rows.fact("gap") else None


async def counts_at(
    bus: Bus, subjects: Subjects, kept: Kept | None, position: int, at: datetime
) -> JobCounts:
    """Jobs by queue and state after an event.

    Reads at most 2,000 events beyond those that were counted, and the own events of 200 jobs.

    Args:
        bus: a connection.
        subjects: of the installation.
        kept: the last counts up to it.
        position: sequence of the event.
        at: when it was stored.

    Raises:
        BusError: the log cannot be read.
    """
    if kept is None:
        return JobCounts({}, None, is_exact=False)
    between = position - kept.position
    inexact = JobCounts(kept.counts, kept.at if kept.position else None, is_exact=False)
    if between > MOST_EVENTS:
        return inexact
    stored: list[Stored] = []
    if between:
        stream = subjects.events_stream
        stored = await bus.history(stream, subjects.events(), between, kept.position + 1)
    log = [entry(one) for one in stored if one.sequence <= position]
    of_jobs = [one for one in log if one.noun == JobEvent.noun]
    if not of_jobs:
        return JobCounts(kept.counts, at, is_exact=True)
    first = {one.key: one for one in reversed(of_jobs)}
    # A job's dispatch is its first event, by compare-and-set: nothing came before it.
    older = [key for key, one in first.items() if not isinstance(one.event, JobDispatched)]
    if len(older) > MOST_JOBS:
        return inexact
    read = partial(_row_before, bus, subjects, kept.position)
    rows = await bounded.gather(read, older, _JOBS_AT_ONCE)
    before = dict(zip(older, rows, strict=True))
    return JobCounts(_moved(kept.counts, before.get, of_jobs), at, is_exact=True)


async def _row_before(bus: Bus, subjects: Subjects, position: int, job_id: str) -> JobRow | None:
    """The job as it was after an event, from its own events."""
    messages = await event_log.read_messages(bus, subjects.events_stream, subjects.job(job_id))
    row: JobRow | None = None
    for stored in messages:
        if stored.sequence <= position:
            row = tables.JOBS.advance(row, entry(stored))
    return row


def _moved(
    counts: Counts, before: Callable[[str], JobRow | None], log: Sequence[LogEntry]
) -> Counts:
    """The counts after further events."""
    new = folding.stretch([tables.JOBS], log)  # type: ignore[list-item]
    former: folding.Rows = {key: before(key) for key in new.touched(tables.JOBS.name)}
    changes = folding.fold([tables.JOBS], {tables.JOBS.name: former}, new)  # type: ignore[list-item]
    moved = Counter(dict(counts))
    for (_, queue, state), change in changes.counts.items():
        moved[queue, state] += change
    return {group: number for group, number in moved.items() if number > 0}
