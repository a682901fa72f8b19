"""The values of which the record of a workflow consists, and how large it may be."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Instant, Int64, check_instant
from penstock.events.job_event import JobError

MAX_STEPS = 10_000
"""Steps, timers and awaited signals of one generation of a workflow."""
MAX_STEP_NUMBER = 999_999_999
"""Of all generations: the ids of its jobs end with the number."""
MAX_MEMO_BYTES = 8_000_000
"""What one workflow records: calls and results, as they are stored."""
MAX_KEY_LENGTH = 300
MAX_SIGNAL_BYTES = 64_000
MAX_REFUSAL_LENGTH = 300
MAX_SIGNAL_ID_LENGTH = 64
MAX_INBOX_SIGNALS, MAX_INBOX_BYTES = 10_000, 8_000_000
"""What is read of a workflow's inbox, as it is stored: later signals wait until there is room."""
MAX_READ_IDS = 1_000
"""Ids of signals that a workflow remembers, of those it took note of last."""
MAX_REFUSED_SIGNALS = 100
"""That one advance passes over; further ones are left to the next."""
MAX_STATUS_FIELDS, MAX_STATUS_LENGTH = 20, 500
MAX_PATCHES, MAX_PATCH_LENGTH = 100, 64
"""Names that one workflow may ask its context about; see ``WorkflowContext.patched``."""

CANCEL_KEY = "#cancel"
"""Key under which a workflow takes note of being cancelled: no step has one like it."""

TIMED_OUT = "workflow-timeout"
"""Kind of the error of a workflow that took longer than the whole of it may."""

StepNumber = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP_NUMBER)]
StepKind = Literal["job", "workflow", "batch", "timer", "signal"]
SignalId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_SIGNAL_ID_LENGTH)]
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
        starts_at: its job does not start before; None: at once.
        arguments: of a batch, a digest of its first call and their number; empty where they are
            encrypted, in the digest, or were recorded by a release before it was there.
    """

    n: StepNumber
    key: Key
    kind: StepKind = "job"
    digest: str = ""
    payload: bytes = b""
    due_at: Instant | None = None
    is_compensated: bool = False
    starts_at: Instant | None = None
    arguments: str = ""

    def __post_init__(self) -> None:
        check_instant("due_at", self.due_at)
        check_instant("starts_at", self.starts_at)

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
        arguments: a digest of what it was called with; empty where that has no stable encoding, is
            encrypted, or was recorded by a release before it was there.
    """

    key: Key
    digest: str
    value: bytes = b""
    error: JobError | None = None
    arguments: str = ""

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
        read_to: signals up to this sequence were consumed, or passed over.
        read: sequences of later ones that earlier generations consumed.
        read_ids: ids of the last signals up to ``read_to`` that had one.
        cancelling: why it is being cancelled, until its code was given ``Cancelled``.
        cancel_by: it is cancelled then, whether or not it has cleaned up; None: it is not.
        ends_by: as in WorkflowAdvanced.
        timed_out: it is being cancelled since it took longer than it may.
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
    read_ids: tuple[SignalId, ...] = ()
    cancelling: str = ""
    cancel_by: Instant | None = None
    ends_by: Instant | None = None
    timed_out: bool = False

    def __post_init__(self) -> None:
        check_instant("blocked_since", self.blocked_since)
        check_instant("cancel_by", self.cancel_by)
        check_instant("ends_by", self.ends_by)

    __repr__ = brief
    __rich_repr__ = brief_fields
