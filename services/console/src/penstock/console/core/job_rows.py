"""One row for each job, folded by the same table of transitions as everywhere else. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.config.topology import of_lane
from penstock.console.core.log_entry import LogEntry, micros, micros_or_none
from penstock.events.envelope import Event
from penstock.events.job import (
    JobCancelled,
    JobCarried,
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
    WorkflowAdvanced,
    WorkflowBlocked,
    WorkflowCancelling,
    WorkflowContinued,
    WorkflowPaused,
    WorkflowResumed,
)
from penstock.jobs import derived_ids
from penstock.jobs.dead_letters.fingerprint import fingerprint
from penstock.jobs.event_store.event_sourcing import LifeCycle
from penstock.jobs.lifecycle import TRANSITIONS, State
from penstock.jobs.payloads.call_digest import call_digest

MAX_ERROR_LENGTH = 300
"""Characters of an error's message that a list shows; the job's own events hold all of it."""


class JobRow(msgspec.Struct, frozen=True, gc=False):
    """A job as lists show it; times are microseconds since 1970.

    Attributes:
        sequence: of its last event.
        queue: without the suffix of a priority.
        available_us: since when it could start.
        tries: how often it may be started; 0: as its pool has it.
        batch: id of its batch; empty for none.
        fingerprint: of the error of a dead job, the same for failures that look alike.
        kind: ``workflow`` for a function that suspends; empty for any other.
        deferred: why it waits although it did not fail.
        done: units of progress that it reported; None for none.
        is_paused: a workflow that no worker continues until it is resumed.
        call: digest of its call; a start with another one does not count.
    """

    id: str
    state: State
    sequence: int
    queue: str
    function: str
    dispatched_us: int
    available_us: int
    priority: str = "normal"
    attempt: int = 0
    tries: int = 0
    started_us: int | None = None
    finished_us: int | None = None
    run_seconds: float | None = None
    pickup_seconds: float | None = None
    host: str = ""
    worker: str = ""
    error_kind: str = ""
    error_message: str = ""
    fingerprint: str = ""
    tags: tuple[str, ...] = ()
    batch: str = ""
    kind: str = ""
    deferred: str = ""
    done: int | None = None
    total: int | None = None
    life: int = 1
    is_paused: bool = False
    call: str = ""


def advance(row: JobRow | None, entry: LogEntry) -> JobRow | None:
    """The row after an entry; one that may not follow moves the sequence alone."""
    advanced = _LIFE_CYCLE.advance(row, entry.event, entry.sequence)
    if advanced is not None and advanced.state.ended and not advanced.finished_us:
        at = entry.event.at if isinstance(entry.event, Event) else None
        return msgspec.structs.replace(advanced, finished_us=micros_or_none(at))
    return advanced


def counted(row: JobRow) -> tuple[str, str]:
    """Jobs are counted by queue and state."""
    return row.queue, row.state.value


def _begin(row: JobRow | None, event: JobEvent, sequence: int) -> JobRow | None:
    match event:
        case JobCarried() if row is None:
            return _restored(event, sequence)
        case JobDispatched():
            return _dispatched(event, sequence)
        case JobRevived():
            return _revived(row, event, sequence)
    return None


def _begin_at_end(event: Event, sequence: int) -> JobRow | None:
    if not isinstance(event, JobCompleted):
        return None
    queue, priority = of_lane(event.queue)
    return JobRow(
        id=event.job_id,
        state=State.COMPLETED,
        sequence=sequence,
        queue=queue,
        priority=priority,
        function=event.function,
        dispatched_us=micros(event.at),
        available_us=micros(event.at),
        attempt=event.attempt,
        batch=_batch(event.job_id),
        finished_us=micros(event.at),
        run_seconds=event.run_seconds,
    )


def _dispatched(event: JobDispatched, sequence: int) -> JobRow:
    queue, priority = of_lane(event.queue)
    return JobRow(
        id=event.job_id,
        state=State.SCHEDULED if event.due_at else State.WAITING,
        sequence=sequence,
        queue=queue,
        priority=priority,
        function=event.function,
        dispatched_us=micros(event.at),
        available_us=micros(event.due_at or event.at),
        tries=event.tries,
        tags=event.tags,
        batch=_batch(event.job_id),
        kind=event.kind,
        call=call_digest(event.payload),
    )


def _revived(row: JobRow | None, event: JobRevived, sequence: int) -> JobRow:
    queue, priority = of_lane(event.queue)
    return JobRow(
        id=event.job_id,
        state=State.WAITING,
        sequence=sequence,
        queue=queue,
        priority=priority,
        function=event.function,
        dispatched_us=row.dispatched_us if row else micros(event.at),
        available_us=micros(event.at),
        tries=event.tries,
        tags=row.tags if row else event.tags,
        batch=_batch(event.job_id),
        kind=row.kind if row else "",
        life=row.life + 1 if row else 2,
        call=call_digest(event.payload),
    )


def _restored(event: JobCarried, sequence: int) -> JobRow | None:
    if event.state not in tuple(State):
        return None
    queue, priority = of_lane(event.queue)
    return JobRow(
        id=event.job_id,
        state=State(event.state),
        sequence=sequence,
        queue=queue,
        priority=priority,
        function=event.function,
        dispatched_us=micros(event.dispatched_at),
        available_us=micros(event.available_at),
        attempt=event.attempt,
        tries=event.tries,
        started_us=micros_or_none(event.started_at),
        finished_us=micros_or_none(event.finished_at),
        run_seconds=event.run_seconds,
        host=event.host,
        worker=event.worker,
        tags=event.tags,
        batch=_batch(event.job_id),
        kind=event.kind,
        deferred=event.put_off,
        done=event.done,
        total=event.total,
        life=event.life,
        call=call_digest(event.payload),
        is_paused=event.paused_at is not None,
        fingerprint=fingerprint(event.error) if event.error and event.state == "dead" else "",
        **_error(event.error),
    )


def _changes(row: JobRow, event: JobEvent, _: int) -> dict[str, Any]:
    if isinstance(event, JobCarried | MemoCarried):
        return {}
    match event:
        case JobStarted():
            return {
                "attempt": event.attempt,
                "started_us": micros(event.at),
                "finished_us": None,
                "pickup_seconds": event.pickup_seconds,
                "host": event.host,
                "worker": event.worker,
                "deferred": "",
            }
        case JobProgressed():
            return {"done": event.done, "total": event.total}
        case JobCompleted():
            ended = {"finished_us": micros(event.at), "run_seconds": event.run_seconds}
            return {**ended, **_error(None)}
        case JobFailed():
            ended = {"finished_us": micros(event.at), "run_seconds": event.run_seconds}
            return {**ended, **_error(event.error)}
        case JobRetrying():
            return {"available_us": micros(event.due_at), "deferred": event.put_off}
        case JobReleased():
            return {"available_us": micros(event.at)}
        case JobRecovered():
            return _recovered(event)
        case JobMoved():
            queue, priority = of_lane(event.queue)
            return {"queue": queue, "priority": priority, "call": call_digest(event.payload)}
        case JobDead():
            dead = {"finished_us": micros(event.at), "fingerprint": fingerprint(event.error)}
            return {**dead, **_error(event.error)}
        case JobCancelled():
            return {"finished_us": micros(event.at)}
        case JobTagged():
            return {"tags": event.applied_to(row.tags)}
    return _workflow_changes(event)


def _workflow_changes(event: JobEvent) -> dict[str, Any]:
    match event:
        case WorkflowContinued():
            return {"call": call_digest(event.payload)}
        case WorkflowPaused():
            return {"is_paused": True}
        case WorkflowResumed() | WorkflowCancelling():
            return {"is_paused": False}
        case WorkflowBlocked():
            return {"deferred": event.reason[:MAX_ERROR_LENGTH]}
        case WorkflowAdvanced():
            return {"deferred": ""}
    return {}


def _recovered(event: JobRecovered) -> dict[str, Any]:
    if event.due_at is None:
        return {"available_us": micros(event.at)}
    later = {"available_us": micros(event.due_at), "deferred": event.reason[:MAX_ERROR_LENGTH]}
    return {"state": State.RETRYING, **later}


def _error(error: JobError | None) -> dict[str, Any]:
    if error is None:
        return {"error_kind": "", "error_message": ""}
    return {"error_kind": error.kind, "error_message": error.message[:MAX_ERROR_LENGTH]}


def _batch(job_id: str) -> str:
    member = derived_ids.member(job_id)
    return member.batch if member else ""


_LIFE_CYCLE: LifeCycle[State, JobRow, JobEvent] = LifeCycle(
    "job", TRANSITIONS, JobEvent, (JobCarried, MemoCarried), _begin, _changes, _begin_at_end
)
