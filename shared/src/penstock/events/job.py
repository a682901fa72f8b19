"""What happens to a job. The order these may come in is `penstock.jobs.lifecycle`."""

from __future__ import annotations

import msgspec

from penstock.events.envelope import Codec, Instant, Int64
from penstock.events.job_event import JobError as JobError  # noqa: PLC0414 - for importers
from penstock.events.job_event import JobEvent as JobEvent  # noqa: PLC0414
from penstock.events.workflow import (
    MemoCarried,
    StepRecorded,
    StepsScheduled,
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowFixed,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.events.workflow_memo import WorkflowMemo

MAX_JOB_TAGS, MAX_TAG_LENGTH = 20, 100
"""Of a job, with those that it was given after its dispatch; length in characters."""


class JobDispatched(JobEvent, frozen=True, kw_only=True, tag=True):
    """A job was accepted. ``payload`` is the encoded call, everything needed to run it again.

    Attributes:
        due_at: not before this time (delayed job); None means at once.
        expires_at: a job that has not been started by then never is; None means it may at any time.
        kind: ``workflow`` for a function that suspends; empty for any other.
        version: of a workflow, as its author declares it.
        digest: of a workflow's code, where it was dispatched.
    """

    queue: str
    function: str
    payload: bytes
    tags: tuple[str, ...] = ()
    tries: Int64 = 1
    due_at: Instant | None = None
    expires_at: Instant | None = None
    kind: str = ""
    version: Int64 = 0
    digest: str = ""


class JobStarted(JobEvent, frozen=True, kw_only=True, tag=True):
    """A worker won the job; this event's sequence is the fencing token of the attempt.

    Attributes:
        attempt: 1 for the first; interruptions by the platform do not count.
        pickup_seconds: from available (dispatched or due) to started.
        message: sequence of the queue message it was started from: only that message, delivered
            again, proves that the worker was lost.
        max_lost: lost workers in a row after which the job is dead; 0: as the settings say.
        function: the job's, as in JobDispatched; empty in events of versions before it was there.
        slots: how many jobs its worker runs at a time.
        at_most_once: its author wants no second run, whatever interrupts the first.
        call: digest of the call in that message; empty in events of versions before it was there.
            A start from another call than the job's does not count.
    """

    queue: str
    attempt: Int64
    host: str
    worker: str
    message: Int64 = 0
    pickup_seconds: float = 0.0
    max_lost: Int64 = 0
    function: str = ""
    slots: Int64 = 1
    at_most_once: bool = False
    call: str = ""


class JobProgressed(JobEvent, frozen=True, kw_only=True, tag=True):
    done: Int64
    total: Int64 | None = None


class JobCommitted(JobEvent, frozen=True, kw_only=True, tag=True):
    """An attempt's output stands: no other attempt of the job can commit under this name."""

    output: str
    location: str


class SparkCost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an attempt's work cost on Spark, over all its stages.

    Attributes:
        cpu_seconds: of executors.
        peak_memory_bytes: of the stage that used most for execution.
        stages: that ran at least one task.
    """

    cpu_seconds: float = 0.0
    rows_read: Int64 = 0
    rows_written: Int64 = 0
    shuffle_read_bytes: Int64 = 0
    shuffle_write_bytes: Int64 = 0
    peak_memory_bytes: Int64 = 0
    stages: Int64 = 0


class JobCompleted(JobEvent, frozen=True, kw_only=True, tag=True):
    """The job's one recorded success. ``result`` is MessagePack.

    Attributes:
        forgiven: an error that its author declared harmless; empty where there was none.
        peak_memory_bytes: resident memory of the worker's process at most, while the attempt ran; 0
            where it was not measured: below 10 ms, or where the kernel does not report it.
        spark_cost: where `spark.measure_cost` is on.
        function: as in JobStarted.
        no_result: what the function returned is not stored, as its author declared.
        result_until: the result is stored apart from the event until then; None: it is in it.
    """

    queue: str
    attempt: Int64
    run_seconds: float
    result: bytes = b""
    cpu_seconds: float = 0.0
    peak_memory_bytes: Int64 = 0
    spark_session: str | None = None
    spark_cost: SparkCost | None = None
    forgiven: str = ""
    function: str = ""
    no_result: bool = False
    result_until: Instant | None = None


class JobFailed(JobEvent, frozen=True, kw_only=True, tag=True):
    """An attempt failed; JobRetrying or JobDead is appended in the same atomic batch.

    Attributes:
        peak_memory_bytes: as in JobCompleted.
        cpu_seconds: of the thread that ran the attempt.
        function: as in JobStarted.
        will_retry: whether JobRetrying follows; None in events of versions before it was there.
    """

    queue: str
    attempt: Int64
    error: JobError
    run_seconds: float = 0.0
    peak_memory_bytes: Int64 = 0
    cpu_seconds: float = 0.0
    function: str = ""
    will_retry: bool | None = None


class JobRetrying(JobEvent, frozen=True, kw_only=True, tag=True):
    """The job runs again from ``due_at`` on, as attempt ``attempt``.

    Attributes:
        put_off: why it was deferred although it did not fail, by a rate limit for example; the
            attempt is then the same as before. Empty after a failure.
        function: as in JobStarted.
    """

    attempt: Int64
    due_at: Instant
    put_off: str = ""
    function: str = ""


class JobReleased(JobEvent, frozen=True, kw_only=True, tag=True):
    """A worker gave the job back unfinished; the attempt does not count."""

    reason: str


class JobRecovered(JobEvent, frozen=True, kw_only=True, tag=True):
    """The worker that ran it was lost (it died, or its claim lapsed) or stuck; the attempt does not
    count.

    Attributes:
        reason: which worker, and how it ended where that is known: signal or exit code.
        due_at: when the job runs again; None: at once.
        strategy: for a stuck job: ``graceful``, ``checkpoint`` or ``restart``; else empty.
        from_checkpoint: the job continues from its last checkpoint, if it has one.
        together: how many jobs may be to blame, this one included: those that the worker ran when
            it was lost; for a suspect, the suspects among them.
    """

    reason: str
    due_at: Instant | None = None
    strategy: str = ""
    from_checkpoint: bool = True
    together: Int64 = 1


class JobCancelled(JobEvent, frozen=True, kw_only=True, tag=True):
    """The job ended without a result.

    Attributes:
        cause: ``asked``, ``expired`` or ``skipped``.
        function: as in JobStarted; empty too where a batch or graph cancels its jobs.
    """

    reason: str
    cause: str = "asked"
    function: str = ""


class JobDead(JobEvent, frozen=True, kw_only=True, tag=True):
    """No more tries: the job lies in the dead-letter stream.

    Attributes:
        function: as in JobStarted; empty too where the message names none.
        attempt: the last one; 0 where none began.
    """

    queue: str
    error: JobError
    function: str = ""
    attempt: Int64 = 0


class JobRevived(JobEvent, frozen=True, kw_only=True, tag=True):
    """A dead or cancelled job was requeued: a new life, with its call, attempts counted anew.

    Attributes:
        payload: the encoded call; another than before where the arguments were ``changed``.
        reason: given by the person who requeued it.
        commits: output that stands from earlier lives, whose events have left the log.
    """

    queue: str
    function: str
    payload: bytes
    tags: tuple[str, ...] = ()
    tries: Int64 = 1
    changed: bool = False
    reason: str = ""
    commits: dict[str, str] = {}


class JobMoved(JobEvent, frozen=True, kw_only=True, tag=True):
    """A job that does not run was moved to another queue; messages made before are void.

    Attributes:
        queue: where it waits now.
        from_queue: where it waited.
        payload: the encoded call, which names the queue.
        due_at: when a delayed or retried job is due; None: at once.
        reason: given by the person who moved it.
    """

    queue: str
    from_queue: str
    payload: bytes
    due_at: Instant | None = None
    reason: str = ""


class JobTagged(JobEvent, frozen=True, kw_only=True, tag=True):
    """The tags of a job were changed after its dispatch; the job goes on as it is.

    Attributes:
        added: tags that it has from now on.
        removed: tags that it has no more.
        function: as in JobStarted.
        state: of `penstock.jobs.lifecycle.State`, in which the job was then.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    function: str = ""
    state: str = ""

    def applied_to(self, tags: tuple[str, ...]) -> tuple[str, ...]:
        """The tags after it, given those before; no more than a job may have."""
        kept = tuple(dict.fromkeys(tag for tag in tags if tag not in self.removed))
        new = (tag for tag in dict.fromkeys(self.added) if tag not in kept)
        fitting = [tag for tag in new if 0 < len(tag) <= MAX_TAG_LENGTH]
        return (*kept, *fitting[: max(0, MAX_JOB_TAGS - len(kept))])


class JobCarried(JobEvent, frozen=True, kw_only=True, tag=True):
    """All that the job's earlier events led to: they leave the log, and this takes their place.

    Nothing happened to the job. Where earlier events are still there, they count and this does not.

    Attributes:
        state: as of `penstock.jobs.lifecycle.State`.
        dispatch_id: id of its first event.
        changed_by: sequence of the last event that changed the job.
        changed_id: id of that event.
        life_from: sequence of the event with which the job's present life began.
        token: sequence of the latest attempt's `JobStarted`.
        void_before: checkpoints of attempts before this sequence are void.
        moved: sequence of the last `JobMoved`; 0 for none.
        at_most_once: as in JobStarted.
        no_result: as in JobCompleted.
        result_until: as in JobCompleted.
        workflow: what a workflow has recorded; None for any other job.
        wakes_at: when a suspended workflow goes on by itself.
        kind: as in JobDispatched.
        version: as in JobDispatched.
        paused_at: since when a workflow is paused; None where it is not.
        pause_reason: as in WorkflowPaused.
    """

    queue: str
    function: str
    payload: bytes
    state: str
    dispatched_at: Instant
    available_at: Instant
    changed_by: Int64
    life_from: Int64
    changed_id: str = ""
    dispatch_id: str = ""
    put_off: str = ""
    tags: tuple[str, ...] = ()
    tries: Int64 = 0
    attempt: Int64 = 0
    next_attempt: Int64 = 1
    lost_workers: Int64 = 0
    lost_together: Int64 = 0
    lost_beside: Int64 = 0
    max_lost: Int64 = 0
    slots: Int64 = 1
    started_at: Instant | None = None
    finished_at: Instant | None = None
    host: str = ""
    worker: str = ""
    message: Int64 = 0
    token: Int64 = 0
    done: Int64 | None = None
    total: Int64 | None = None
    result: bytes = b""
    error: JobError | None = None
    run_seconds: float | None = None
    cpu_seconds: float = 0.0
    peak_memory_bytes: Int64 = 0
    life: Int64 = 1
    commits: dict[str, str] = {}
    void_before: Int64 = 0
    moved: Int64 = 0
    at_most_once: bool = False
    no_result: bool = False
    result_until: Instant | None = None
    workflow: WorkflowMemo | None = None
    wakes_at: Instant | None = None
    kind: str = ""
    version: Int64 = 0
    paused_at: Instant | None = None
    pause_reason: str = ""


JOB_EVENTS = Codec(
    JobDispatched,
    JobStarted,
    JobProgressed,
    JobCommitted,
    JobCompleted,
    JobFailed,
    JobRetrying,
    JobReleased,
    JobRecovered,
    JobCancelled,
    JobDead,
    JobRevived,
    JobMoved,
    JobTagged,
    JobCarried,
    WorkflowAdvanced,
    StepRecorded,
    StepsScheduled,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    MemoCarried,
    WorkflowFixed,
    WorkflowPaused,
    WorkflowResumed,
)
