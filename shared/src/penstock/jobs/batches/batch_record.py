"""The life of a batch: its states, its table of transitions, and its record. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from penstock.events.batch import (
    BatchCancelled,
    BatchCarried,
    BatchClosed,
    BatchCompleted,
    BatchCreated,
    BatchEvent,
    BatchFailed,
    BatchProgressed,
    BatchReopened,
    BatchStopping,
    Callbacks,
    Counts,
)
from penstock.events.job import JobError
from penstock.jobs.event_store.event_sourcing import (
    Edge,
    LifeCycle,
    carried_state,
    shared_fields,
    values,
)

MAX_TITLE_LENGTH = 200


class BatchState(StrEnum):
    OPEN = "open"
    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({BatchState.COMPLETED, BatchState.FAILED, BatchState.CANCELLED})
_IN_ANY_END = tuple(state for state in BatchState if state in _ENDED)
_LIVE = (BatchState.OPEN, BatchState.RUNNING, BatchState.STOPPING)


TRANSITIONS: tuple[Edge[BatchState, BatchEvent], ...] = (
    Edge((None,), BatchCreated, BatchState.OPEN, "jobs are being added"),
    Edge((BatchState.OPEN,), BatchClosed, BatchState.RUNNING, "its producers have finished"),
    Edge(_LIVE, BatchProgressed, None, "some of its jobs have ended"),
    Edge(
        (BatchState.OPEN, BatchState.RUNNING),
        BatchStopping,
        BatchState.STOPPING,
        "too many failures, cancelled, or left open: the rest is cancelled",
    ),
    Edge((BatchState.RUNNING,), BatchCompleted, BatchState.COMPLETED, "its last job has ended"),
    Edge(
        (BatchState.RUNNING, BatchState.STOPPING),
        BatchFailed,
        BatchState.FAILED,
        "its last job has ended, after too many failures",
    ),
    Edge((BatchState.STOPPING,), BatchCancelled, BatchState.CANCELLED, "its last job has ended"),
    Edge(_IN_ANY_END, BatchReopened, BatchState.OPEN, "failed jobs run again"),
)


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as its own events add up.

    Attributes:
        state: where it is in its life.
        sequence: of its last event: what the next append expects.
        first_sequence: of its creation: no event of its jobs lies before.
        ended_at: None while it has not ended.
        counts: as of the last progress, or exact once it has ended.
        round: how often failed jobs were run again.
        is_shortened: its first events have left the log.
        slots: its jobs up to ``counted_to``, whose events may have left the log; see
            :class:`penstock.events.batch.BatchCarried`.
        counted_to: sequence of the log up to which ``slots`` counts.
        total: jobs that its creator was about to add; None where it did not know.
        seconds: from its creation to its end.
        failed_jobs: ids of at most ten jobs that are dead, the first one in front; of a batch that
            has failed.
        error: of the first of them.
        started_at: when its first job was started; None before.
    """

    id: str
    state: BatchState
    sequence: int
    first_sequence: int
    title: str
    allowed_failures: int
    allowed_percent: float | None
    callbacks: Callbacks
    open_seconds: float
    created_at: datetime
    changed_at: datetime
    ended_at: datetime | None = None
    counts: Counts = Counts()
    cause: str = ""
    reason: str = ""
    round: int = 0
    is_shortened: bool = False
    slots: dict[str, bytes] | None = None
    counted_to: int = 0
    total: int | None = None
    seconds: float = 0.0
    failed_jobs: tuple[str, ...] = ()
    error: JobError | None = None
    started_at: datetime | None = None

    @property
    def status(self) -> str:
        """``pending`` before its first job starts, then ``processing``; at its end its state."""
        if self.state.ended:
            return self.state.value
        return "processing" if self.started_at else "pending"

    @property
    def cancelled_at(self) -> datetime | None:
        """When its last job had ended after it was cancelled; None if it was not."""
        return self.ended_at if self.state is BatchState.CANCELLED else None

    def allowed(self, total: int) -> int:
        """How many of ``total`` jobs may fail."""
        if self.allowed_percent is None:
            return self.allowed_failures
        return int(total * self.allowed_percent / 100)


_CARRIED = shared_fields(BatchRecord, BatchCarried, ("slots", "counted_to"))


def carried(
    record: BatchRecord,
    source: str,
    slots: dict[str, bytes] | None = None,
    counted_to: int = 0,
    added_at: float = 0.0,
    progressed_at: float = 0.0,
) -> BatchCarried:
    """The event that takes the place of all that led to ``record``; see there."""
    return BatchCarried(
        batch_id=record.id,
        correlation_id=record.id,
        source=source,
        state=record.state,
        slots=slots,
        counted_to=counted_to,
        added_at=added_at,
        progressed_at=progressed_at,
        **values(record, _CARRIED),
    )


def _restored(event: BatchCarried, sequence: int) -> BatchRecord:
    """Raises IllegalTransition: its state is of a later version."""
    state = carried_state(BatchState, event.state, f"batch {event.batch_id}")
    return BatchRecord(
        id=event.batch_id,
        state=state,
        sequence=sequence,
        is_shortened=True,
        slots=event.slots,
        counted_to=event.counted_to,
        **values(event, _CARRIED),
    )


def _begin(record: BatchRecord | None, event: BatchEvent, sequence: int) -> BatchRecord | None:
    match event:
        case BatchCarried() if record is None:
            return _restored(event, sequence)
        case BatchCreated():
            return _created(event, sequence)
    return None


def _created(event: BatchCreated, sequence: int) -> BatchRecord:
    return BatchRecord(
        id=event.batch_id,
        state=BatchState.OPEN,
        sequence=sequence,
        first_sequence=sequence,
        title=event.title,
        allowed_failures=event.allowed_failures,
        allowed_percent=event.allowed_percent,
        callbacks=event.callbacks,
        open_seconds=event.open_seconds,
        total=event.total,
        created_at=event.at,
        changed_at=event.at,
    )


def _changes(record: BatchRecord, event: BatchEvent, sequence: int) -> dict[str, Any]:
    if isinstance(event, BatchCarried):
        return {"slots": event.slots, "counted_to": event.counted_to} if event.slots else {}
    started_at = getattr(event, "started_at", None)
    started = {"started_at": started_at} if started_at and not record.started_at else {}
    return {"changed_at": event.at, **started} | _own_changes(event)


def _own_changes(event: BatchEvent) -> dict[str, Any]:
    match event:
        case BatchProgressed():
            return {"counts": event.counts}
        case BatchStopping():
            return {"cause": event.cause, "reason": event.reason}
        case BatchCompleted():
            return {"counts": event.counts, "ended_at": event.at, "seconds": event.seconds}
        case BatchFailed() | BatchCancelled():
            ended = {"counts": event.counts, "ended_at": event.at, "seconds": event.seconds}
            first: dict[str, Any] = {}
            if isinstance(event, BatchFailed) and event.failed_jobs:
                first = {"failed_jobs": event.failed_jobs, "error": event.error}
            return {**ended, **first, "reason": event.reason}
        case BatchReopened():
            nothing_failed = {"failed_jobs": (), "error": None, "cause": "", "reason": ""}
            return {"round": event.round, "ended_at": None, "seconds": 0.0, **nothing_failed}
    return {}


_LIFE_CYCLE = LifeCycle("batch", TRANSITIONS, BatchEvent, (BatchCarried,), _begin, _changes)
evolve, advance = _LIFE_CYCLE.evolve, _LIFE_CYCLE.advance
fold, ignored_events = _LIFE_CYCLE.fold, _LIFE_CYCLE.ignored_events
