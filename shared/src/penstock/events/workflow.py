"""What a workflow records: a job that suspends while it waits for steps, timers and signals.

Its history lies among the events of its job, each appended by compare-and-set. What is asked of it
from outside is its inbox, appended without a condition.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Codec, Event, Instant, Int64, check_instant
from penstock.events.job_event import JobError, JobEvent

MAX_STEPS = 10_000
"""Steps, timers and awaited signals of one generation of a workflow."""
MAX_STEP_NUMBER = 999_999_999
"""Of all generations: the ids of its jobs end with the number."""
MAX_MEMO_BYTES = 8_000_000
"""What one workflow records: calls and results, as they are stored."""
MAX_KEY_LENGTH = 300
MAX_SIGNAL_BYTES = 64_000
MAX_REFUSAL_LENGTH = 300
MAX_INBOX_SIGNALS, MAX_INBOX_BYTES = 10_000, 8_000_000
"""What a workflow may have unread when its signals leave the old end of the log."""
MAX_REFUSED_SIGNALS = 100
"""That one advance passes over; further ones are left to the next."""
MAX_STATUS_FIELDS, MAX_STATUS_LENGTH = 20, 500
MAX_PATCHES, MAX_PATCH_LENGTH = 100, 64
"""Names that one workflow may ask its context about; see ``WorkflowContext.patched``."""

CANCEL_KEY = "#cancel"
"""Key under which a workflow takes note of being cancelled: no step has one like it."""

StepNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP_NUMBER)]
StepKind = Literal["job", "workflow", "batch", "timer", "signal"]
StepOutcome = Literal["completed", "failed", "cancelled", "fired", "received", "timed-out"]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_KEY_LENGTH)]
PatchName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PATCH_LENGTH)]
StatusText = Annotated[str, msgspec.Meta(max_length=MAX_STATUS_LENGTH)]
Status = dict[
    Annotated[str, msgspec.Meta(min_length=1, max_length=64)],
    StatusText | Int64 | float | bool | None,
]


class ScheduledStep(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a workflow waits for, under a key that its code calls it by.

    Attributes:
        n: its number, in the order of their recording; the id of its job ends with it.
        key: path of scopes, name and occurrence.
        kind: ``job``, ``workflow``, ``batch``, ``timer`` or ``signal``.
        digest: of the function and its arguments; the function of a batch; the name of a signal;
            empty for a timer.
        payload: the encoded call of a job or workflow.
        due_at: when a timer fires, or the wait for a signal ends.
        is_compensated: its end is noted also after it was given up: it may have to be undone.
    """

    n: StepNumber
    key: Key
    kind: StepKind = "job"
    digest: str = ""
    payload: bytes = b""
    due_at: Instant | None = None
    is_compensated: bool = False

    def __post_init__(self) -> None:
        check_instant("due_at", self.due_at)

    @property
    def is_job(self) -> bool:
        """Whether it has a job; that of a workflow is one, too."""
        return self.kind in ("job", "workflow")

    __repr__ = brief
    __rich_repr__ = brief_fields


class Resolution(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a step ended, as the workflow took note of it: it never changes again.

    Attributes:
        key: of the step.
        outcome: ``completed``, ``failed`` or ``cancelled`` for a job or batch; ``fired`` for a
            timer; ``received`` or ``timed-out`` for a signal.
        value: the result, the counts of a batch, or the value of the signal, as MessagePack.
        sequence: of the signal's event; 0 for anything else.
    """

    key: Key
    outcome: StepOutcome
    value: bytes = b""
    error: JobError | None = None
    sequence: Int64 = 0

    __repr__ = brief
    __rich_repr__ = brief_fields


class WaitGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Steps that must all have ended for the workflow to go on; of several groups, one suffices.

    Attributes:
        steps: their numbers.
        or_any_failed: it goes on as soon as one of them did not complete, too.
    """

    steps: tuple[StepNumber, ...]
    or_any_failed: bool = False


class InlineResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a function returned or raised that ran inside of the workflow.

    Attributes:
        digest: name of the function.
        value: what it returned, as MessagePack.
    """

    key: Key
    digest: str
    value: bytes = b""
    error: JobError | None = None

    __repr__ = brief
    __rich_repr__ = brief_fields


class RefusedSignal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signal whose value is not of the type that was waited for: it is passed over.

    Attributes:
        sequence: of its event.
        reason: what was expected, and what was sent.
    """

    sequence: Int64
    signal: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REFUSAL_LENGTH)] = ""


class MemoEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A stretch of a workflow's run, from one recording to the next.

    Attributes:
        now: the time that the code saw.
        consumed: what it took note of, in this order.
        scheduled: what it began to wait for, where the stretch ended with a suspension.
        cancelled: numbers of the steps that it gave up, likewise.
        inline: the function that ran inside of it, where the stretch ended with one.
        is_part: the rest of what was to be recorded at its end is in the next entries.
        refused: signals that it passed over.
    """

    now: Instant
    consumed: tuple[Resolution, ...] = ()
    scheduled: tuple[ScheduledStep, ...] = ()
    cancelled: tuple[StepNumber, ...] = ()
    inline: InlineResult | None = None
    is_part: bool = False
    refused: tuple[RefusedSignal, ...] = ()

    def __post_init__(self) -> None:
        check_instant("now", self.now)


class WorkflowMemo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a workflow has recorded: what its code is run again with.

    Attributes:
        entries: in order of their recording.
        wait: what it waits for.
        status: what it shows of itself.
        advances: how often it was suspended.
        inline_steps: how many it has recorded, and parts of what it waits for.
        blocked: why its code cannot go on from here; empty where it can.
        sealed_status: instead of ``status``, of an encrypted workflow.
        following: how many more entries `MemoCarried` holds; 0 for a memo that is whole.
        blocked_since: since when no worker could go on with it; None where one could.
        version: of the code that recorded last; 0 where that is unknown.
        patches: names for which its code was answered that it is new.
        next_number: the least number of its next step; numbers of forgotten ones stay used.
        amended: entries that were there when an operator changed what it goes on from. What its
            code calls there and was not recorded begins anew.
        accepted: entries in which functions and arguments may differ from those recorded.
        fixes: how often an operator, or a further generation, changed what it goes on from.
        generation: how often it began anew with other arguments.
        first_number: of the steps of this generation.
        read_to: signals up to this sequence were consumed by earlier generations.
        read: sequences of later ones that were.
        cancelling: why it is being cancelled, until its code was given ``Cancelled``.
        cancel_by: it is cancelled then, whether or not it has cleaned up; None: it is not.
    """

    entries: tuple[MemoEntry, ...] = ()
    wait: tuple[WaitGroup, ...] = ()
    status: Status = {}
    advances: Int64 = 0
    inline_steps: Int64 = 0
    blocked: str = ""
    sealed_status: bytes = b""
    following: Int64 = 0
    blocked_since: Instant | None = None
    version: Int64 = 0
    patches: tuple[PatchName, ...] = ()
    next_number: Int64 = 0
    amended: Int64 = 0
    accepted: Int64 = 0
    fixes: Int64 = 0
    generation: Int64 = 0
    first_number: Int64 = 0
    read_to: Int64 = 0
    read: tuple[Int64, ...] = ()
    cancelling: str = ""
    cancel_by: Instant | None = None

    def __post_init__(self) -> None:
        check_instant("blocked_since", self.blocked_since)
        check_instant("cancel_by", self.cancel_by)

    __repr__ = brief
    __rich_repr__ = brief_fields


# --- its history ----------------------------------------------------------------------------------
class WorkflowAdvanced(JobEvent, frozen=True, kw_only=True, tag=True):
    """A workflow ran until nothing of it could go on, and is suspended.

    Attributes:
        number: 1 for the first.
        now: the time that its code saw since the last recording.
        consumed: results, timers and signals that it took note of since then, in this order.
        scheduled: what it waits for from now on; its jobs are dispatched after this event.
        cancelled: numbers of the steps that it gave up.
        wait: what must have ended for it to go on: one of these groups.
        due_at: it goes on then in any case; None: only when a group has ended.
        status: what it shows of itself.
        sealed_status: instead of it, of an encrypted workflow.
        run_seconds: of this advance.
        inline_steps: how many `StepRecorded` and `StepsScheduled` it has so far.
        parts: how many `StepsScheduled` it has so far.
        version: of the code that ran; 0 in events of releases before it was there.
        patches: names for which its code was answered since the last recording that it is new.
        fixes: how often an operator changed what it goes on from, so far.
        refused: signals that it passed over.
        payload: the encoded call, for the message that wakes it; empty where it is long.
    """

    queue: str
    number: Int64
    now: Instant
    consumed: tuple[Resolution, ...] = ()
    scheduled: tuple[ScheduledStep, ...] = ()
    cancelled: tuple[StepNumber, ...] = ()
    wait: tuple[WaitGroup, ...] = ()
    due_at: Instant | None = None
    status: Status = {}
    sealed_status: bytes = b""
    run_seconds: float = 0.0
    function: str = ""
    inline_steps: Int64 = 0
    parts: Int64 = 0
    version: Int64 = 0
    patches: tuple[PatchName, ...] = ()
    fixes: Int64 = 0
    refused: tuple[RefusedSignal, ...] = ()
    payload: bytes = b""


class StepRecorded(JobEvent, frozen=True, kw_only=True, tag=True):
    """A function that ran inside of a workflow ended: it does not run again.

    Attributes:
        number: 1 for the first; those of `StepsScheduled` are counted, too.
        now: as in WorkflowAdvanced.
        consumed: as in WorkflowAdvanced.
        inline: what it returned or raised.
        version: as in WorkflowAdvanced.
        patches: as in WorkflowAdvanced.
    """

    number: Int64
    now: Instant
    inline: InlineResult
    consumed: tuple[Resolution, ...] = ()
    version: Int64 = 0
    patches: tuple[PatchName, ...] = ()


class StepsScheduled(JobEvent, frozen=True, kw_only=True, tag=True):
    """A part of what a workflow waits for, or took note of, while it runs; the rest follows.

    One event does not hold all of it, or a batch is to be recorded before its jobs are made.

    Attributes:
        number: counted with those of `StepRecorded`.
        now: as in WorkflowAdvanced.
        consumed: as in WorkflowAdvanced.
        scheduled: as in WorkflowAdvanced.
        cancelled: as in WorkflowAdvanced.
        version: as in WorkflowAdvanced.
        patches: as in WorkflowAdvanced.
    """

    number: Int64
    now: Instant
    consumed: tuple[Resolution, ...] = ()
    scheduled: tuple[ScheduledStep, ...] = ()
    cancelled: tuple[StepNumber, ...] = ()
    version: Int64 = 0
    patches: tuple[PatchName, ...] = ()


class WorkflowBlocked(JobEvent, frozen=True, kw_only=True, tag=True):
    """No code that a worker has can go on with a workflow. Not a failure: no try is used.

    Attributes:
        reason: what was recorded, and what the code calls instead; or which code is missing.
        due_at: it is offered to a worker again then: others may have other code.
        since: when it was first blocked, without having gone on in between; None: now.
    """

    queue: str
    reason: str
    due_at: Instant
    function: str = ""
    since: Instant | None = None


class WorkflowFixed(JobEvent, frozen=True, kw_only=True, tag=True):
    """An operator changed what a blocked workflow goes on from; it is offered to a worker at once.

    Attributes:
        reason: given by the operator.
        forgotten: keys of steps whose record counts no more.
        version: of the code that is to run it from now on; 0: as before.
        accepts: what was recorded so far counts although functions or arguments differ.
    """

    queue: str
    reason: str = ""
    forgotten: tuple[Key, ...] = ()
    version: Int64 = 0
    accepts: bool = False
    function: str = ""


class WorkflowContinued(JobEvent, frozen=True, kw_only=True, tag=True):
    """A workflow begins anew with other arguments: a further generation, that has recorded nothing.

    Attributes:
        generation: 1 for the first after the workflow's own.
        payload: the encoded call.
        read_to: signals up to this sequence were consumed.
        read: sequences of later ones that were.
        version: as in WorkflowAdvanced.
    """

    queue: str
    generation: Int64
    payload: bytes
    read_to: Int64 = 0
    read: tuple[Int64, ...] = ()
    function: str = ""
    version: Int64 = 0

    __repr__ = brief
    __rich_repr__ = brief_fields


class WorkflowCancelling(JobEvent, frozen=True, kw_only=True, tag=True):
    """A client cancels a workflow: ``Cancelled`` is raised at its await, and it may clean up.

    Attributes:
        reason: for people.
        until: it is cancelled then in any case.
    """

    reason: str
    until: Instant
    function: str = ""


class WorkflowPaused(JobEvent, frozen=True, kw_only=True, tag=True):
    """A client paused a workflow: no advance is started until it is resumed.

    Queue messages and timers made before are void: their compare-and-set loses. An advance that
    runs, and steps that were dispatched, go on to their end.

    Attributes:
        reason: given by the person who paused it.
    """

    reason: str = ""
    function: str = ""


class WorkflowResumed(JobEvent, frozen=True, kw_only=True, tag=True):
    """A paused workflow goes on, at once if what it waits for came meanwhile.

    One that is not paused is read again by the orchestrator, which makes up for what it lacks.

    Attributes:
        queue: where it waits.
        due_at: when its timer fires, as before; None where it has none, or that has passed.
        reason: given by the person who resumed it.
    """

    queue: str
    due_at: Instant | None = None
    function: str = ""
    reason: str = ""


class MemoCarried(JobEvent, frozen=True, kw_only=True, tag=True):
    """A part of a memo that is larger than one event; stored at once with its `JobCarried`.

    Attributes:
        offset: how many entries come before these.
    """

    offset: Int64
    entries: tuple[MemoEntry, ...]


# --- its inbox ------------------------------------------------------------------------------------
class SignalReceived(Event, frozen=True, kw_only=True, tag=True):
    """A value was sent to a workflow. It is kept until the workflow waits for it.

    Attributes:
        signal: name of the waits that it is for.
        value: MessagePack.
        signal_id: of signals with the same one, the first counts.
    """

    noun: ClassVar[str] = "workflow"
    key_field: ClassVar[str] = "workflow_id"

    workflow_id: str
    signal: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    value: Annotated[bytes, msgspec.Meta(max_length=MAX_SIGNAL_BYTES)] = b"\xc0"
    signal_id: Annotated[str, msgspec.Meta(max_length=64)] = ""


class CarriedSignal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A signal whose event has left the log.

    Attributes:
        sequence: of that event.
        value: MessagePack; empty for one that was consumed, of which only the id still counts.
    """

    sequence: Int64
    signal: str
    value: bytes = b""
    signal_id: str = ""

    __repr__ = brief
    __rich_repr__ = brief_fields


class InboxCarried(Event, frozen=True, kw_only=True, tag=True):
    """Signals whose events leave the log, of a workflow that may still wait for them.

    Nothing happened to the workflow. A signal that is in the log more than once counts once.
    """

    noun: ClassVar[str] = "workflow"
    key_field: ClassVar[str] = "workflow_id"

    workflow_id: str
    signals: tuple[CarriedSignal, ...]


INBOX_EVENTS = Codec(SignalReceived, InboxCarried)
