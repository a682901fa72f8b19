"""The life of a job: its states, its table of transitions, and its record. Pure.

More than 400 lines: the table, the fields of the record and what each event changes in them are
one definition, and are changed together.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from penstock.events.brief import brief, brief_fields
from penstock.events.envelope import Event
from penstock.events.job import (
    JobCancelled,
    JobCarried,
    JobCommitted,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobEvent,
    JobFailed,
    JobMoved,
    JobProgressed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobRevived,
    JobStarted,
    JobTagged,
)
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
from penstock.jobs.event_store import event_fields
from penstock.jobs.event_store.event_sourcing import (
    Edge,
    LifeCycle,
    carried_state,
    shared_fields,
    values,
)
from penstock.jobs.payloads.call_digest import call_digest
from penstock.jobs.workflows.coded import memo


class State(StrEnum):
    SCHEDULED = "scheduled"
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "retrying"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({State.COMPLETED, State.DEAD, State.CANCELLED})
_LIVE = tuple(state for state in State if state not in _ENDED)
_QUEUED = (State.SCHEDULED, State.WAITING, State.RETRYING)
_STARTABLE = (*_QUEUED, State.SUSPENDED)


def _is_of_its_call(record: JobRecord, event: JobStarted) -> bool:
    """A queue message is no proof of a call: who may store one may put another call in it."""
    return not event.call or not record.call or event.call == record.call


TRANSITIONS: tuple[Edge[State, JobEvent], ...] = (
    Edge((None,), JobDispatched, State.WAITING, "accepted (scheduled, if it is due later)"),
    Edge(
        _STARTABLE, JobStarted, State.RUNNING, "a worker won the compare-and-set", _is_of_its_call
    ),
    Edge((State.RUNNING,), JobProgressed, State.RUNNING, "the job reported its progress"),
    Edge((State.RUNNING,), JobCommitted, State.RUNNING, "it committed output under a name"),
    Edge((State.RUNNING,), JobCompleted, State.COMPLETED, "the function returned"),
    Edge((State.RUNNING,), JobFailed, State.RUNNING, "the attempt failed; the verdict follows"),
    Edge((State.RUNNING,), JobRetrying, State.RETRYING, "tries are left, or it is deferred"),
    Edge((State.RUNNING,), JobReleased, State.WAITING, "its worker gave it back"),
    Edge((State.RUNNING,), JobRecovered, State.WAITING, "its worker was lost (retrying, if later)"),
    Edge((*_STARTABLE, State.RUNNING), JobDead, State.DEAD, "no tries left, or it cannot run"),
    Edge(_QUEUED, JobMoved, None, "a client moved it to another queue"),
    Edge(_LIVE, JobCancelled, State.CANCELLED, "a client or the orchestrator cancelled it"),
    Edge((State.RUNNING,), StepRecorded, State.RUNNING, "a step inside of a workflow ended"),
    Edge((State.RUNNING,), StepsScheduled, State.RUNNING, "a part of what it waits for is known"),
    Edge((State.RUNNING,), WorkflowAdvanced, State.SUSPENDED, "nothing of a workflow can go on"),
    Edge((*_STARTABLE, State.RUNNING), WorkflowBlocked, State.SUSPENDED, "no code here fits it"),
    Edge((State.SUSPENDED,), WorkflowFixed, State.WAITING, "an operator fixed a blocked workflow"),
    Edge((State.RUNNING,), WorkflowContinued, State.WAITING, "it begins anew with other arguments"),
    Edge(tuple(State), JobTagged, None, "its tags were changed; it goes on as it is"),
    Edge(_LIVE, WorkflowCancelling, None, "a client cancels it: its code may clean up"),
    Edge(_LIVE, WorkflowPaused, None, "a client paused it: no advance is started"),
    Edge(_LIVE, WorkflowResumed, None, "a client resumed it"),
    Edge((None, State.DEAD, State.CANCELLED), JobRevived, State.WAITING, "a client requeued it"),
)


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its events add up.

    Attributes:
        state: where it is in its life.
        sequence: of the last event: what the next append expects.
        available_at: since when it could start.
        changed_by: sequence of the last event that changed more than its tags.
        put_off: why it waits although it did not fail.
        attempt: the running or last attempt; 0 before the first.
        next_attempt: number of the attempt that a start would be.
        lost_workers: how often in a row a worker was lost for which no other job may be to blame.
        lost_together: how often in a row one was lost for which others may be.
        lost_beside: how many jobs may be to blame for the last loss, this one included; 0 where
            none was lost.
        max_lost: after how many lost workers it is dead; 0: as the settings have it.
        slots: how many jobs its last worker runs at a time.
        message: queue message that the running attempt was started from.
        token: sequence of the last JobStarted: the fencing token of that attempt.
        life: 1 for the first; a dead or cancelled job that is requeued begins another.
        life_from: sequence of the event that this life began with; messages made from earlier ones
            belong to a life that is over.
        commits: committed output, by name; of earlier lives too, if its arguments are the same.
        changed_id: id of the event ``changed_by``.
        dispatch_id: id of its first event.
        tries: how often it may be started, as dispatched; 0 for as its pool has it.
        void_before: checkpoints of attempts with a lower token are void.
        moved: sequence of the last JobMoved or WorkflowContinued; 0 for none.
        at_most_once: it must not run again after it was started.
        no_result: it completed, and its function stores no result.
        result_until: its result is stored apart from its events until then.
        cpu_seconds: of the thread that ran the last attempt; 0 where it has not ended.
        peak_memory_bytes: resident memory of the worker at most, while the last attempt ran; 0
            where it was not measured.
        kind: as in JobDispatched.
        version: of a workflow's code, as it was dispatched; 0 where that is unknown.
        workflow: what a workflow has recorded; None before its first recording.
        wakes_at: when a suspended workflow goes on by itself.
        paused_at: since when a workflow is paused; None where it is not.
        pause_reason: given by the person who paused it.
    """

    id: str
    queue: str
    function: str
    payload: bytes
    state: State
    sequence: int
    dispatched_at: datetime
    available_at: datetime
    changed_by: int = 0
    put_off: str = ""
    tags: tuple[str, ...] = ()
    attempt: int = 0
    next_attempt: int = 1
    lost_workers: int = 0
    lost_together: int = 0
    lost_beside: int = 0
    max_lost: int = 0
    slots: int = 1
    started_at: datetime | None = None
    finished_at: datetime | None = None
    host: str = ""
    worker: str = ""
    message: int = 0
    token: int = 0
    done: int | None = None
    total: int | None = None
    result: bytes = b""
    error: JobError | None = None
    run_seconds: float | None = None
    life: int = 1
    life_from: int = 0
    commits: dict[str, str] = {}
    changed_id: str = ""
    dispatch_id: str = ""
    tries: int = 0
    void_before: int = 0
    moved: int = 0
    at_most_once: bool = False
    no_result: bool = False
    result_until: datetime | None = None
    cpu_seconds: float = 0.0
    peak_memory_bytes: int = 0
    workflow: WorkflowMemo | None = None
    wakes_at: datetime | None = None
    kind: str = ""
    version: int = 0
    paused_at: datetime | None = None
    pause_reason: str = ""

    __repr__ = brief
    __rich_repr__ = brief_fields

    @property
    def call(self) -> str:
        """The digest of its call, that of each worker's start is compared with."""
        return call_digest(self.payload)

    @property
    def messages_from(self) -> int:
        """Queue messages made from earlier events are void: of a life, or a queue, that is left."""
        return max(self.life_from, self.moved)

    @property
    def is_workflow(self) -> bool:
        """Whether it is a coded workflow: as dispatched, or by what it has recorded."""
        return self.kind == "workflow" or self.workflow is not None

    @property
    def code_version(self) -> int:
        """The version of the code that a workflow is to go on with; 0: the newest."""
        return (self.workflow.version if self.workflow else 0) or self.version

    @property
    def is_paused(self) -> bool:
        """Whether no advance is to be started; an ended one is not paused."""
        return self.paused_at is not None and not self.state.ended


_CARRIED = shared_fields(JobRecord, JobCarried)


def carried(record: JobRecord, source: str) -> list[JobEvent]:
    """The event that takes the place of all that led to ``record``, and parts of a large memo."""
    head, parts = memo.parts(record.workflow)
    about: dict[str, Any] = {"job_id": record.id, "correlation_id": record.id, "source": source}
    whole = {**values(record, _CARRIED), "workflow": head}
    return [
        JobCarried(state=record.state, **whole, **about),
        *(MemoCarried(offset=offset, entries=entries, **about) for offset, entries in parts),
    ]


def _restored(event: JobCarried, sequence: int) -> JobRecord:
    """Raises IllegalTransition: its state is of a later version."""
    state = carried_state(State, event.state, f"job {event.job_id}")
    return JobRecord(id=event.job_id, state=state, sequence=sequence, **values(event, _CARRIED))


def _begin(record: JobRecord | None, event: JobEvent, sequence: int) -> JobRecord | None:
    match event:
        case JobCarried() if record is None:
            return _restored(event, sequence)
        case JobDispatched():
            return _dispatched(event, sequence)
        case JobRevived():
            return _revived(record, event, sequence)
    return None


def _begin_at_end(event: Event, sequence: int) -> JobRecord | None:
    """A job of which only the end is left in the log: its call is not known any more."""
    if not isinstance(event, JobCompleted):
        return None
    record = JobRecord(
        id=event.job_id,
        queue=event.queue,
        function="",
        payload=b"",
        state=State.COMPLETED,
        sequence=sequence,
        changed_by=sequence,
        changed_id=event.id,
        dispatched_at=event.at,
        available_at=event.at,
        attempt=event.attempt,
        life_from=sequence,
    )
    return msgspec.structs.replace(record, **_changes(record, event, sequence))


def _dispatched(event: JobDispatched, sequence: int) -> JobRecord:
    return JobRecord(
        id=event.job_id,
        queue=event.queue,
        function=event.function,
        payload=event.payload,
        tags=event.tags,
        state=State.SCHEDULED if event.due_at else State.WAITING,
        sequence=sequence,
        changed_by=sequence,
        dispatched_at=event.at,
        available_at=event.due_at or event.at,
        life_from=sequence,
        changed_id=event.id,
        dispatch_id=event.id,
        tries=event.tries,
        kind=event.kind,
        version=event.version,
    )


def _revived(record: JobRecord | None, event: JobRevived, sequence: int) -> JobRecord:
    """A life of its own: what the one before led to is over, whether or not its events are left."""
    return JobRecord(
        id=event.job_id,
        queue=event.queue,
        function=event.function,
        payload=event.payload,
        tags=record.tags if record else event.tags,
        state=State.WAITING,
        sequence=sequence,
        changed_by=sequence,
        dispatched_at=record.dispatched_at if record else event.at,
        available_at=event.at,
        commits={} if event.changed else {**event.commits, **(record.commits if record else {})},
        life=record.life + 1 if record else 2,
        life_from=sequence,
        changed_id=event.id,
        dispatch_id=record.dispatch_id if record else "",
        tries=event.tries,
        void_before=sequence if event.changed else record.void_before if record else 0,
        workflow=memo.revived(record.workflow, event.changed) if record else None,
        kind=record.kind if record else "",
        version=record.version if record else 0,
    )


def _changes(record: JobRecord, event: JobEvent, sequence: int) -> dict[str, Any]:
    if isinstance(event, JobCarried):
        return {}
    if isinstance(event, MemoCarried):
        return {"workflow": memo.joined(record.workflow, event)}
    if isinstance(event, JobTagged):  # messages that were made before are as good as they were
        return {"tags": event.applied_to(record.tags)}
    changes = _own_changes(record, event, sequence)
    changes["changed_by"], changes["changed_id"] = sequence, event.id
    return changes


def _own_changes(record: JobRecord, event: JobEvent, sequence: int) -> dict[str, Any]:
    match event:
        case JobCommitted():
            return {"commits": {**record.commits, event.output: event.location}}
        case JobRecovered():
            return _recovered(record, event, sequence)
        case WorkflowPaused() | WorkflowResumed() | WorkflowCancelling():
            return _pause_changes(record, event)
    fields = event_fields.of(event, sequence)
    return _workflow_changes(record, event, sequence) if fields is None else fields


def _workflow_changes(record: JobRecord, event: JobEvent, sequence: int) -> dict[str, Any]:
    changed = memo.changes(record.workflow, event)
    if isinstance(event, WorkflowContinued):  # messages with the arguments before are void
        return {**changed, "payload": event.payload, "moved": sequence, "message": 0}
    return changed


def _pause_changes(
    record: JobRecord, event: WorkflowPaused | WorkflowResumed | WorkflowCancelling
) -> dict[str, Any]:
    if isinstance(event, WorkflowPaused):
        return {"paused_at": event.at, "pause_reason": event.reason}
    resumed: dict[str, Any] = {"paused_at": None, "pause_reason": ""}
    if isinstance(event, WorkflowCancelling):
        return {**resumed, "workflow": memo.cancelling(record.workflow, event)}
    # Its message was dropped while it was paused; an advance that still runs has its own.
    return resumed if record.state is State.RUNNING else {**resumed, "message": 0}


def _recovered(record: JobRecord, event: JobRecovered, sequence: int) -> dict[str, Any]:
    counted = "lost_together" if event.together > 1 else "lost_workers"
    lost: dict[str, Any] = {counted: getattr(record, counted) + 1}
    if not event.strategy:  # a stuck job ended no process: it need not be kept from others
        lost["lost_beside"] = max(event.together, 1)
    if not event.from_checkpoint:
        lost["void_before"] = sequence
    if event.due_at is None:
        return lost | {"available_at": event.at}
    delayed = {"state": State.RETRYING, "available_at": event.due_at, "put_off": event.reason}
    return lost | delayed


END_EVENTS = frozenset(edge.event.__name__ for edge in TRANSITIONS if edge.target in _ENDED)
"""Names of the events after which a job has ended."""

_LIFE_CYCLE = LifeCycle(
    "job", TRANSITIONS, JobEvent, (JobCarried, MemoCarried), _begin, _changes, _begin_at_end
)
evolve, advance, edge_of = _LIFE_CYCLE.evolve, _LIFE_CYCLE.advance, _LIFE_CYCLE.edge
fold, ignored_events = _LIFE_CYCLE.fold, _LIFE_CYCLE.ignored_events
