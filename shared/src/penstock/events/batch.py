"""What happens to a batch, in the order that `penstock.jobs.batches.batch_record` allows."""

from __future__ import annotations

from typing import ClassVar, Literal

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Codec, Event, Instant, Int64
from penstock.events.job import JobError


class Callback(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job to be dispatched when something has ended.

    Attributes:
        payload: the encoded call.
        into: the parameter that is given the outcome; empty for none.
    """

    payload: bytes
    into: str = ""

    __repr__ = brief
    __rich_repr__ = brief_fields


class Callbacks(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Attributes: then: after a success; catch: after a failure; finally_: at the end, whatever."""

    then: Callback | None = None
    catch: Callback | None = None
    finally_: Callback | None = msgspec.field(default=None, name="finally")


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Jobs of a batch by how they ended; ``pending`` ones have not."""

    pending: Int64 = 0
    completed: Int64 = 0
    failed: Int64 = 0
    cancelled: Int64 = 0

    @property
    def total(self) -> int:
        return self.pending + self.completed + self.failed + self.cancelled


class BatchEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "batch"
    key_field: ClassVar[str] = "batch_id"

    batch_id: str


class BatchCreated(BatchEvent, frozen=True, kw_only=True, tag=True):
    """A batch is open: jobs can be added.

    Attributes:
        allowed_failures: more failed jobs than this end it.
        allowed_percent: the same as a share of its jobs, judged once it is closed; None where the
            number counts.
        open_seconds: open and without a new job for so long, it is given up.
        total: jobs that its creator is about to add; None where it did not know.
    """

    title: str = ""
    allowed_failures: Int64 = 0
    allowed_percent: float | None = None
    callbacks: Callbacks = Callbacks()
    open_seconds: float = 3600.0
    total: Int64 | None = None


class BatchClosed(BatchEvent, frozen=True, kw_only=True, tag=True):
    """No more jobs, except from jobs of the batch itself: it ends with the last of them."""


class BatchProgressed(BatchEvent, frozen=True, kw_only=True, tag=True):
    """How far it is, at most once a second.

    Attributes:
        started_at: when its first job was started; None before, and from earlier versions.
    """

    counts: Counts
    started_at: Instant | None = None


class BatchStopping(BatchEvent, frozen=True, kw_only=True, tag=True):
    """Its remaining jobs are being cancelled.

    Attributes:
        cause: ``failures`` (more than allowed), ``client`` (a client cancelled it), ``abandoned``
            (its producers left it open).
    """

    cause: Literal["failures", "client", "abandoned"]
    reason: str


class BatchCompleted(BatchEvent, frozen=True, kw_only=True, tag=True):
    """All its jobs have ended, and no more failed than allowed.

    Attributes:
        seconds: since it was created.
        started_at: as in BatchProgressed.
    """

    counts: Counts
    seconds: float = 0.0
    started_at: Instant | None = None


class BatchFailed(BatchEvent, frozen=True, kw_only=True, tag=True):
    """All its jobs have ended; more failed than allowed, or it was never closed.

    Attributes:
        seconds: as in BatchCompleted.
        failed_jobs: ids of at most ten jobs that are dead, the first one in front.
        error: of the first one, without its traceback.
        started_at: as in BatchProgressed.
    """

    counts: Counts
    reason: str
    seconds: float = 0.0
    failed_jobs: tuple[str, ...] = ()
    error: JobError | None = None
    started_at: Instant | None = None


class BatchCancelled(BatchEvent, frozen=True, kw_only=True, tag=True):
    """All its jobs have ended, some because the batch was cancelled.

    Attributes:
        seconds: as in BatchCompleted.
        started_at: as in BatchProgressed.
    """

    counts: Counts
    reason: str
    seconds: float = 0.0
    started_at: Instant | None = None


class BatchReopened(BatchEvent, frozen=True, kw_only=True, tag=True):
    """Jobs that failed run again, as new jobs that take their places.

    Attributes:
        round: 1 for the first time.
    """

    round: Int64


class BatchCarried(BatchEvent, frozen=True, kw_only=True, tag=True):
    """All that the batch's earlier events led to: they leave the log, and this takes their place.

    Attributes:
        slots: how each of its jobs stands, by who added it: a byte a job, compressed (zlib); None
            where that is not known, of a batch that has ended.
        counted_to: the log's sequence up to which jobs are counted in ``slots``.
        added_at: POSIX seconds of the last job added.
        progressed_at: POSIX seconds of the last `BatchProgressed`.
        total: as in BatchCreated.
        seconds: as in BatchCompleted.
        failed_jobs: as in BatchFailed; of one that has not ended, the first.
        error: as in BatchFailed.
        started_at: as in BatchProgressed.
    """

    state: str
    title: str
    allowed_failures: Int64
    allowed_percent: float | None
    callbacks: Callbacks
    open_seconds: float
    first_sequence: Int64
    created_at: Instant
    changed_at: Instant
    ended_at: Instant | None = None
    counts: Counts = Counts()
    cause: str = ""
    reason: str = ""
    round: Int64 = 0
    slots: dict[str, bytes] | None = None
    counted_to: Int64 = 0
    added_at: float = 0.0
    progressed_at: float = 0.0
    total: Int64 | None = None
    seconds: float = 0.0
    failed_jobs: tuple[str, ...] = ()
    error: JobError | None = None
    started_at: Instant | None = None


BATCH_EVENTS = Codec(
    BatchCreated,
    BatchClosed,
    BatchProgressed,
    BatchStopping,
    BatchCompleted,
    BatchFailed,
    BatchCancelled,
    BatchReopened,
    BatchCarried,
)
