"""What a workflow records: a job that suspends while it waits for steps, timers and signals.

Its history lies among the events of its job, each appended by compare-and-set. What is asked of it
from outside is its inbox, appended without a condition.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Codec, Event, Instant, Int64
from penstock.events.job_event import JobEvent
from penstock.events.workflow_memo import (
    MAX_SIGNAL_BYTES,
    MAX_SIGNAL_ID_LENGTH,
    InlineResult,
    Key,
    MemoEntry,
    PatchName,
    RefusedSignal,
    Resolution,
    ScheduledStep,
    SignalId,
    Status,
    StepNumber,
    WaitGroup,
)


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
        read_to: signals up to this sequence were consumed or passed over; 0: as before.
        read_ids: ids of those of them that had one, and were not in an earlier `read_ids`.
        payload: the encoded call, for the message that wakes it; empty where it is long.
        ends_by: it is cancelled then, as its author limits the whole; None: never.
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
    read_to: Int64 = 0
    read_ids: tuple[SignalId, ...] = ()
    payload: bytes = b""
    ends_by: Instant | None = None


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

    One event does not hold all of it; or a batch is to be recorded before its jobs are made; or the
    workflow ends with a signal that was there before it was waited for.

    Attributes:
        number: counted with those of `StepRecorded`.
        now: as in WorkflowAdvanced.
        consumed: as in WorkflowAdvanced.
        scheduled: as in WorkflowAdvanced.
        cancelled: as in WorkflowAdvanced.
        version: as in WorkflowAdvanced.
        patches: as in WorkflowAdvanced.
        function: of the workflow; empty in events of releases before it was there.
    """

    number: Int64
    now: Instant
    consumed: tuple[Resolution, ...] = ()
    scheduled: tuple[ScheduledStep, ...] = ()
    cancelled: tuple[StepNumber, ...] = ()
    version: Int64 = 0
    patches: tuple[PatchName, ...] = ()
    function: str = ""


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
        read_to: as in WorkflowAdvanced.
        read: sequences of later ones that were consumed.
        read_ids: as in WorkflowAdvanced.
        version: as in WorkflowAdvanced.
    """

    queue: str
    generation: Int64
    payload: bytes
    read_to: Int64 = 0
    read: tuple[Int64, ...] = ()
    read_ids: tuple[SignalId, ...] = ()
    function: str = ""
    version: Int64 = 0

    __repr__ = brief
    __rich_repr__ = brief_fields


class WorkflowCancelling(JobEvent, frozen=True, kw_only=True, tag=True):
    """A workflow is being cancelled: ``Cancelled`` is raised at its await, and it may clean up.

    Attributes:
        reason: for people.
        until: it is cancelled then in any case.
        timed_out: it took longer than its author allows the whole, and ends as dead; else a client
            cancels it.
    """

    reason: str
    until: Instant
    function: str = ""
    timed_out: bool = False


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
    signal_id: Annotated[str, msgspec.Meta(max_length=MAX_SIGNAL_ID_LENGTH)] = ""


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
