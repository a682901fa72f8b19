"""One row for each batch, folded by the batches' own table of transitions. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.console.core.log_entry import LogEntry, micros, micros_or_none
from penstock.events.batch import (
    BatchCancelled,
    BatchCarried,
    BatchCompleted,
    BatchCreated,
    BatchEvent,
    BatchFailed,
    BatchProgressed,
    BatchReopened,
    BatchStopping,
    Counts,
)
from penstock.jobs.batches.batch_record import TRANSITIONS, BatchState
from penstock.jobs.event_store.event_sourcing import LifeCycle


class BatchRow(msgspec.Struct, frozen=True):
    """A batch as lists show it; times are microseconds since 1970.

    Attributes:
        pending: jobs that have not ended, as of its last progress; so are the other counts.
        total: jobs that its creator was about to add; None where it did not know.
    """

    id: str
    state: BatchState
    sequence: int
    title: str
    created_us: int
    ended_us: int | None = None
    started_us: int | None = None
    pending: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int | None = None
    reason: str = ""


def advance(row: BatchRow | None, entry: LogEntry) -> BatchRow | None:
    """The row after an entry."""
    return _LIFE_CYCLE.advance(row, entry.event, entry.sequence)


def counted(row: BatchRow) -> tuple[str, str]:
    """Batches are counted by state."""
    return "", row.state.value


def _begin(row: BatchRow | None, event: BatchEvent, sequence: int) -> BatchRow | None:
    match event:
        case BatchCreated():
            return BatchRow(
                id=event.batch_id,
                state=BatchState.OPEN,
                sequence=sequence,
                title=event.title,
                created_us=micros(event.at),
                total=event.total,
            )
        case BatchCarried() if row is None and event.state in tuple(BatchState):
            return BatchRow(
                id=event.batch_id,
                state=BatchState(event.state),
                sequence=sequence,
                title=event.title,
                created_us=micros(event.created_at),
                ended_us=micros_or_none(event.ended_at),
                started_us=micros_or_none(event.started_at),
                total=event.total,
                reason=event.reason,
                **_counts(event.counts),
            )
    return None


def _changes(row: BatchRow, event: BatchEvent, _: int) -> dict[str, Any]:
    match event:
        case BatchProgressed():
            return {**_counts(event.counts), **_started(row, event)}
        case BatchStopping():
            return {"reason": event.reason}
        case BatchCompleted():
            return {**_counts(event.counts), **_started(row, event), "ended_us": micros(event.at)}
        case BatchFailed() | BatchCancelled():
            ended = {"ended_us": micros(event.at), "reason": event.reason}
            return {**_counts(event.counts), **_started(row, event), **ended}
        case BatchReopened():
            return {"ended_us": None, "reason": ""}
    return {}


def _started(
    row: BatchRow, event: BatchProgressed | BatchCompleted | BatchFailed | BatchCancelled
) -> dict[str, Any]:
    return {"started_us": row.started_us or micros_or_none(event.started_at)}


def _counts(counts: Counts) -> dict[str, Any]:
    return {
        "pending": counts.pending,
        "completed": counts.completed,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
    }


_LIFE_CYCLE: LifeCycle[BatchState, BatchRow, BatchEvent] = LifeCycle(
    "batch", TRANSITIONS, BatchEvent, (BatchCarried,), _begin, _changes
)
