"""One job, from its own subject of the event log: exact, and about a millisecond to read.

Of a history of more than 1,000 events the middle of each kind that is many is not read. Where that
is progress alone, as of a job that reports it often, the job is exact as well; where it is tries,
what depends on the sum of them (such as how often it was requeued) is that of the ones read.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from penstock.bus.protocol import Stored
from penstock.console.core import cursors
from penstock.console.parts import Console
from penstock.console.past.moments import NotKept
from penstock.console.read_models.long_history import read_ends, read_on
from penstock.console.read_models.projection import Standing
from penstock.events.envelope import Event
from penstock.events.job import JOB_EVENTS, JobCarried, JobStarted
from penstock.events.subjects import check_name
from penstock.jobs.event_store import event_log
from penstock.jobs.event_store.event_log import History
from penstock.jobs.job_log import JobLog, trace_of
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import fold
from penstock.views.event_text import happened
from penstock.views.job_history import JobRow, job_row

SHOWN_AT_EACH_END = 200
"""Events of a longer history that are shown at its beginning and at its end."""
_MAX_ERROR_LENGTH = 16_000


class JobAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A job as its events add up, without its arguments and its result.

    Attributes:
        tries: how often it may be started.
        fencing_token: sequence of the last start: only that attempt can record an end.
        standing: how current this is.
    """

    job: JobRow
    priority: str
    tags: tuple[str, ...]
    tries: int
    batch: str
    kind: str
    life: int
    available_at: datetime
    fencing_token: int
    cpu_seconds: float
    peak_memory_bytes: int
    error_kind: str
    error_message: str
    traceback: str
    trace_id: str
    attempts: list[Attempt]
    events: int
    standing: Standing


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a job, and how it ended.

    Attributes:
        end: name of the event that ended it; empty while it runs.
        text: what that event says.
    """

    number: int
    started_at: datetime
    host: str
    worker: str
    pickup_seconds: float
    ended_at: datetime | None = None
    end: str = ""
    text: str = ""


class EventItem(msgspec.Struct, frozen=True, kw_only=True):
    """One event as a line."""

    sequence: int
    type: str
    at: datetime | None
    source: str
    text: str


class JobEvents(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a job.

    Attributes:
        left_out: events between the first and the last ones.
        next: cursor of the events that follow the first ones, or this page; empty where none do.
    """

    items: list[EventItem]
    total: int
    left_out: int
    next: str = ""


_ENDS = (
    *("JobCompleted", "JobFailed", "JobReleased", "JobRecovered", "JobDead", "JobCancelled"),
    *("JobRetrying", "WorkflowAdvanced", "WorkflowBlocked"),
)
"""Events after which an attempt does not run any more."""


class Read(NamedTuple):
    """What was read of a job's events.

    Attributes:
        head: from the first one on, all of them.
        rest: after what was left out; empty where nothing was.
        trace: parent of its dispatch's trace; empty for none.
        total: events that there are.
        standing: of when that is.
    """

    head: History
    rest: History
    trace: str
    total: int
    standing: Standing


async def read_job(
    console: Console, job_id: str, moment: datetime | None = None
) -> JobAnswer | None:
    """The job, now or at a past moment; None where the log has no event of it by then.

    Raises:
        BadName: no job can have this id.
        NotKept: its events up to that moment are not kept.
        BusError: the log cannot be read.
    """
    return await _answer(console, await _read(console, job_id, moment), moment)


async def read_whole(
    console: Console, job_id: str, cursor: str = "", moment: datetime | None = None
) -> tuple[JobAnswer, JobEvents] | None:
    """The job and its events as lines, as of one moment.

    Args:
        console: its parts.
        job_id: of the job.
        cursor: where the events go on; empty for the first and the last ones.
        moment: of the past, of which a cursor is ignored; None for now.

    Raises:
        BadName, BadCursor, NotKept, BusError
    """
    read = await _read(console, job_id, moment)
    answer = await _answer(console, read, moment)
    if answer is None:
        return None
    if cursor and moment is None:
        return answer, await _following(console, job_id, cursor, read.total)
    return answer, _lines(console, job_id, read)


async def _answer(console: Console, read: Read, moment: datetime | None) -> JobAnswer | None:
    history = (*read.head, *read.rest)
    record = fold(history)
    if record is None:
        return None
    waits = await console.handed_on.read(record) if moment is None else None
    view = JobView(record=record, events=history, traceparent=read.trace, handed_on=waits)
    error = record.error
    return JobAnswer(
        job=job_row(view),
        priority=view.priority,
        tags=record.tags,
        tries=record.tries,
        batch=view.batch_id,
        kind=record.kind,
        life=record.life,
        available_at=record.available_at,
        fencing_token=record.token,
        cpu_seconds=record.cpu_seconds,
        peak_memory_bytes=record.peak_memory_bytes,
        error_kind=error.kind if error else "",
        error_message=error.message[:_MAX_ERROR_LENGTH] if error else "",
        traceback=error.traceback[:_MAX_ERROR_LENGTH] if error else "",
        trace_id=view.trace_id,
        attempts=_attempts_of(read),
        events=read.total,
        standing=read.standing,
    )


async def read_events(
    console: Console, job_id: str, cursor: str = "", moment: datetime | None = None
) -> JobEvents | None:
    """The job's events as lines; None where there are none.

    Raises:
        BadName, BadCursor, NotKept, BusError
    """
    if cursor:
        check_name("job", job_id)
        counts = await console.bus.count(
            console.subjects.events_stream, console.subjects.job(job_id)
        )
        return await _following(console, job_id, cursor, sum(counts.values()))
    read = await _read(console, job_id, moment)
    return _lines(console, job_id, read) if read.total else None


def _lines(console: Console, job_id: str, read: Read) -> JobEvents:
    """A long history without its middle."""
    first, most = read.head, SHOWN_AT_EACH_END
    left_out = max(0, read.total - 2 * most)
    if not left_out or len(first) < most:
        return _shown((*first, *read.rest), read.total)
    last = (*first, *read.rest)[-most:]
    cursor = _cursor(console, job_id, first[most - 1][0])
    return _shown((*first[:most], *last), read.total, left_out, cursor)


async def _following(console: Console, job_id: str, cursor: str, total: int) -> JobEvents:
    """The next events after those that a page ended with."""
    [after] = cursors.decode(cursor, _listing(job_id), console.store.cursor_key)
    stream, subject = console.subjects.events_stream, console.subjects.job(job_id)
    most = 2 * SHOWN_AT_EACH_END
    history = _decoded(await read_on(console.bus, stream, subject, int(after), most))
    has_more = len(history) == most
    return _shown(
        history, total, following=_cursor(console, job_id, history[-1][0]) if has_more else ""
    )


def _shown(history: History, total: int, left_out: int = 0, following: str = "") -> JobEvents:
    items = [_line(sequence, event) for sequence, event in history]
    return JobEvents(items=items, total=total, left_out=left_out, next=following)


def _cursor(console: Console, job_id: str, sequence: int) -> str:
    return cursors.encode((sequence,), _listing(job_id), console.store.cursor_key)


def _listing(job_id: str) -> str:
    return f"events of job {job_id}"


def _attempts_of(read: Read) -> list[Attempt]:
    """Those that were read. Of one whose end may have been left out, nothing is stated."""
    if not any(isinstance(event, JobStarted) for _, event in read.rest):
        return attempts((*read.head, *read.rest))
    first = attempts(read.head)
    if first and not first[-1].end:
        first.pop()
    return [*first, *attempts(read.rest)]


def attempts(history: History) -> list[Attempt]:
    """Each start, with the event that ended it."""
    started: list[Attempt] = []
    for _, event in history:
        if isinstance(event, JobStarted):
            started.append(
                Attempt(
                    number=event.attempt,
                    started_at=event.at,
                    host=event.host,
                    worker=event.worker,
                    pickup_seconds=event.pickup_seconds,
                )
            )
        elif isinstance(event, Event) and event.name in _ENDS and started and not started[-1].end:
            ended = {"ended_at": event.at, "end": event.name, "text": happened(event)}
            started[-1] = msgspec.structs.replace(started[-1], **ended)
    return started


def _line(sequence: int, event: Any) -> EventItem:
    if not isinstance(event, Event):
        text = "this version cannot read it"
        return EventItem(sequence=sequence, type=event.type, at=None, source="", text=text)
    return EventItem(
        sequence=sequence, type=event.name, at=event.at, source=event.source, text=happened(event)
    )


async def _read(console: Console, job_id: str, moment: datetime | None = None) -> Read:
    check_name("job", job_id)
    if moment is not None:
        return await _read_past(console, job_id, moment)
    stream, subject = console.subjects.events_stream, console.subjects.job(job_id)
    messages, total, head = await read_ends(console.bus, stream, subject, SHOWN_AT_EACH_END)
    history = _decoded(messages)
    parents = (trace_of(stored.headers).get("traceparent", "") for stored in messages)
    trace = next(filter(None, parents), "")
    return Read(history[:head], history[head:], trace, total, console.standing)


async def _read_past(console: Console, job_id: str, moment: datetime) -> Read:
    history, trace = await JobLog(console.bus, console.subjects).traced_history(job_id)
    place = await console.history.place(moment)
    by_then = tuple(one for one in history if one[0] <= place.sequence)
    if not by_then and history:
        _, first = history[0]
        if isinstance(first, JobCarried) and first.dispatched_at <= moment:
            raise NotKept(
                f"what had happened to job {job_id!r} by that moment is not kept any more: its "
                f"history was shortened at {first.at:%Y-%m-%d %H:%M:%S} UTC"
            )
    standing = console.history.standing_of_events(moment, place)
    return Read(by_then, (), trace, len(by_then), standing)


def _decoded(messages: Sequence[Stored]) -> History:
    return tuple((one.sequence, event_log.read_event(one, JOB_EVENTS)) for one in messages)
