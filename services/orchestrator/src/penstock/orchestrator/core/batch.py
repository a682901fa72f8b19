"""A batch as the orchestrator follows it: events in, instructions out. Pure.

Counts come from the event log alone: a job has one end event, by compare-and-set, and the tally
holds one slot a job. So what is delivered twice, late, or read again counts once.
"""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import Any

import msgspec

from penstock.events.batch import (
    BatchCancelled,
    BatchCarried,
    BatchCompleted,
    BatchEvent,
    BatchFailed,
    BatchProgressed,
    BatchStopping,
    Counts,
)
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JobError
from penstock.jobs.batches import batch_record
from penstock.jobs.batches.batch_record import BatchRecord, BatchState
from penstock.jobs.batches.outcome import Outcome
from penstock.jobs.batches.slots import Slot
from penstock.jobs.derived_ids import Member
from penstock.orchestrator.core.instructions import Append, CallBack, Cancel, Instruction
from penstock.orchestrator.core.tally import SLOTS, PackedTally, Tally, may_follow

PROGRESS_SECONDS = 1.0
"""Progress becomes an event at most this often."""
SETTLE_SECONDS = 1.0
"""A batch that is stopped while jobs are being added waits this long for those under way."""
_CANCELLED_AT_ONCE = 1_000
_NAMED_FAILURES, _ERROR_LETTERS = 10, 1_000
"""Jobs that `BatchFailed` names, and how much of the first one's error it holds."""


class BatchSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a batch as of ``position`` in the log. Times are POSIX seconds."""

    record: BatchRecord
    tally: PackedTally
    position: int
    added_at: float
    progressed_at: float


class Batch:
    """One batch that has not been finished with.

    Args:
        record: as of its creation.
        source: of its events.
    """

    def __init__(self, record: BatchRecord, source: str, tally: Tally | None = None) -> None:
        self.record, self._source = record, source
        self.tally = tally or Tally()
        self.position = record.sequence
        self._added_at = self._progressed_at = record.created_at.timestamp()
        self._has_news = False  # of its first start, which no event of the batch holds yet

    @staticmethod
    def restored(snapshot: BatchSnapshot, source: str) -> Batch:
        batch = Batch(snapshot.record, source, Tally(snapshot.tally))
        batch.position = snapshot.position
        batch._added_at, batch._progressed_at = snapshot.added_at, snapshot.progressed_at
        return batch

    @staticmethod
    def carried_on(event: BatchCarried, sequence: int, source: str) -> Batch:
        """As it was when its earlier events left the log; what came since is to be read again.

        Raises:
            IllegalTransition
        """
        record = batch_record.evolve(None, event, sequence)
        record = msgspec.structs.replace(record, slots=None)  # the tally has them
        batch = Batch(record, source, Tally(PackedTally(event.slots or {})))
        batch.position = event.counted_to
        batch._added_at, batch._progressed_at = event.added_at, event.progressed_at
        return batch

    def carried(self, counted_to: int) -> BatchCarried:
        """What takes the place of its events. Args: counted_to: all up to it was seen."""
        return batch_record.carried(
            self.record,
            self._source,
            self.tally.pack().lanes,
            counted_to,
            self._added_at,
            self._progressed_at,
        )

    def snapshot(self) -> BatchSnapshot:
        return BatchSnapshot(
            record=self.record,
            tally=self.tally.pack(),
            position=self.position,
            added_at=self._added_at,
            progressed_at=self._progressed_at,
        )

    # --- events in --------------------------------------------------------------------------------
    def see(self, event: Event | UnknownEvent, sequence: int) -> None:
        """An event of the batch itself. Raises IllegalTransition."""
        if sequence <= self.position:
            return
        self.position = sequence
        try:
            if isinstance(event, BatchEvent):
                self.record = batch_record.evolve(self.record, event, sequence)
        finally:  # an event that is skipped moves the sequence, too
            self.record = msgspec.structs.replace(self.record, sequence=sequence, slots=None)
        if isinstance(event, BatchEvent) and not isinstance(event, BatchCarried):
            self._added_at = max(self._added_at, event.at.timestamp())
        if isinstance(event, BatchProgressed):
            self._progressed_at = event.at.timestamp()
            self._has_news = self._has_news and event.started_at is None

    def see_start(self, sequence: int, at: datetime) -> None:
        """One of its jobs was started."""
        if sequence > self.position:
            self.position = sequence
            if self.record.started_at is None:
                self.record = msgspec.structs.replace(self.record, started_at=at)
                self._has_news = True

    def see_job(
        self,
        member: Member,
        event: str,
        sequence: int,
        at: float,
        error: JobError | None = None,
    ) -> None:
        """An event of one of its jobs, by name.

        Args:
            at: POSIX seconds.
            error: of a job that is dead.
        """
        if sequence <= self.position or event not in SLOTS:
            return
        self.position = sequence
        slot = SLOTS[event]
        if not may_follow(self.tally.slot(member), event):
            return
        self.tally.put(member, slot)
        if slot is Slot.PENDING:
            self._added_at = at
        elif slot is Slot.FAILED and error is not None and not self.record.failed_jobs:
            self.record = msgspec.structs.replace(
                self.record,
                failed_jobs=(member.job_id,),
                error=JobError(kind=error.kind[:200], message=error.message[:_ERROR_LETTERS]),
            )

    # --- instructions out -------------------------------------------------------------------------
    def decide(self, now: datetime) -> Instruction | None:
        """What is to be done now, if anything."""
        counts, state = self.tally.counts, self.record.state
        if state.ended:
            return self._call_back()
        if state is BatchState.STOPPING:
            step = self._stop(counts, now)
        elif self._failed_too_often(counts):
            step = self._too_many(counts, now)
        elif state is BatchState.RUNNING and not counts.pending:
            step = Append(BatchCompleted(counts=counts, **self._end(now)), self.record.sequence)
        elif state is BatchState.OPEN and self._is_abandoned(now):
            step = self._stopping(
                "abandoned", "its client stopped adding jobs and did not close it", now
            )
        else:
            step = None
        return step or self._progress(counts, now)

    def _failed_too_often(self, counts: Counts) -> bool:
        if self.record.state is BatchState.OPEN and (
            self.record.allowed_percent is not None  # of how many is not known yet
            or self.record.round  # those that failed are about to be requeued
        ):
            return False
        return counts.failed > self.record.allowed(counts.total)

    def _too_many(self, counts: Counts, now: datetime) -> Instruction:
        reason = (
            f"too many failures: {counts.failed} of at most {self.record.allowed(counts.total)}"
        )
        if counts.pending or self.record.state is BatchState.OPEN:
            return self._stopping("failures", reason, now)
        return self._failed(counts, reason, now)

    def _is_abandoned(self, now: datetime) -> bool:
        return now.timestamp() - self._added_at > self.record.open_seconds

    def _stop(self, counts: Counts, now: datetime) -> Instruction | None:
        if counts.pending:
            waiting = islice(self.tally.pending(self.record.id), _CANCELLED_AT_ONCE)
            reason = f"batch {self.record.id}: {self.record.reason}"
            return Cancel(tuple(member.job_id for member in waiting), reason[:1000])
        if now.timestamp() - self._added_at < SETTLE_SECONDS:
            return None
        if self.record.cause == "client":
            event = BatchCancelled(counts=counts, reason=self.record.reason, **self._end(now))
            return Append(event, self.record.sequence)
        return self._failed(counts, self.record.reason, now)

    def _progress(self, counts: Counts, now: datetime) -> Instruction | None:
        if counts == self.record.counts and not self._has_news:
            return None
        if now.timestamp() - self._progressed_at < PROGRESS_SECONDS:
            return None
        event = BatchProgressed(
            counts=counts, started_at=self.record.started_at, **self._about(now)
        )
        return Append(event, self.record.sequence)

    def _stopping(self, cause: str, reason: str, now: datetime) -> Append:
        event = BatchStopping(cause=cause, reason=reason, **self._about(now))  # type: ignore[arg-type]
        return Append(event, self.record.sequence)

    def _failed(self, counts: Counts, reason: str, now: datetime) -> Append:
        first, failed = self.record.failed_jobs, self.tally.failed(self.record.id)
        others = (member.job_id for member in failed if member.job_id not in first)
        event = BatchFailed(
            counts=counts,
            reason=reason,
            failed_jobs=(*first, *islice(others, _NAMED_FAILURES - len(first))),
            error=self.record.error,
            **self._end(now),
        )
        return Append(event, self.record.sequence)

    def _end(self, now: datetime) -> dict[str, Any]:
        seconds = (now - self.record.created_at).total_seconds()
        return {
            **self._about(now),
            "seconds": round(max(seconds, 0.0), 3),
            "started_at": self.record.started_at,
        }

    def _call_back(self) -> CallBack:
        record = self.record
        success = {BatchState.COMPLETED: True, BatchState.FAILED: False}.get(record.state)
        outcome = Outcome(
            id=record.id,
            state=record.state,
            counts=record.counts,
            title=record.title,
            reason=record.reason,
            failed_job=record.failed_jobs[0] if record.failed_jobs else "",
        )
        return CallBack(record.callbacks, outcome, success, record.round)

    def _about(self, now: datetime) -> dict[str, Any]:
        about = {"batch_id": self.record.id, "correlation_id": self.record.id}
        return {**about, "source": self._source, "at": now}
