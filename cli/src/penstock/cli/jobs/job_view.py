"""Jobs as people and programs look at them: rows of a list, one job with its story."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any

import msgspec

from penstock.cli.output import Column
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JobError, JobProgressed
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord, ignored_events
from penstock.jobs.payloads import redaction
from penstock.views import wording
from penstock.views.event_text import happened


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a list. ``waited_seconds``: from available to started, of the last attempt."""

    id: str
    state: str
    function: str
    queue: str
    attempt: int
    dispatched_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    run_seconds: float | None = None
    host: str = ""
    worker: str = ""
    progress: str = ""
    error: str = ""


COLUMNS = (
    Column("id", lambda row: row.id),
    Column("state", lambda row: row.state),
    Column("function", lambda row: row.function),
    Column("queue", lambda row: row.queue),
    Column("attempt", lambda row: str(row.attempt), number=True),
    Column("dispatched", lambda row: wording.clock(row.dispatched_at)),
    Column("ran", lambda row: wording.seconds(row.run_seconds), number=True),
    Column("worker", lambda row: row.worker or wording.UNKNOWN),
    Column("note", lambda row: row.error or row.progress),
)


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One job with everything that is known; ``arguments`` and ``result`` as plain values."""

    job: JobRow
    tags: tuple[str, ...]
    tries: int
    arguments: Any
    result: Any
    error: JobError | None
    timeline: list[Any]


def row(record: JobRecord) -> JobRow:
    return JobRow(
        id=record.id,
        state=record.state,
        function=record.function,
        queue=record.queue,
        attempt=record.attempt,
        dispatched_at=record.dispatched_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        run_seconds=record.run_seconds,
        host=record.host,
        worker=record.worker,
        progress=_progress(record),
        error=f"{record.error.kind}: {record.error.message}" if record.error else "",
    )


def detail(view: JobView) -> JobDetail:
    return JobDetail(
        job=row(view.record),
        tags=view.record.tags,
        tries=view.record.tries,
        arguments=redaction.arguments(view.record.payload),
        result=redaction.result(view.record.result, view.record.payload),
        error=view.record.error,
        timeline=_plain(view.events),
    )


def description(view: JobView) -> list[str]:
    """One job as lines of text."""
    record, told = view.record, detail(view)
    lines = [
        f"job        {record.id}",
        f"state      {record.state}, attempt {record.attempt}" + _tries(told.tries),
        f"function   {record.function}",
        f"queue      {record.queue}",
        f"arguments  {_json(told.arguments)}",
        *_optional("tags", ", ".join(record.tags)),
        *_optional("progress", _progress(record)),
        *_optional("worker", f"{record.worker} on {record.host}" if record.worker else ""),
        *_optional("ran", wording.seconds(record.run_seconds) if record.run_seconds else ""),
        *_optional("result", _json(told.result) if record.result else ""),
        "timeline",
        *_timeline(view.events),
    ]
    if record.error:
        lines += ["error", *_indented(f"{record.error.kind}: {record.error.message}")]
        lines += _indented(record.error.traceback)
    return lines


def _timeline(events: Sequence[tuple[int, Event | UnknownEvent]]) -> list[str]:
    """One line an event; progress that follows on progress is one line, with the last of it."""
    reasons = dict(ignored_events(events))
    lines: list[str] = []
    for is_progress, group in groupby(events, lambda entry: isinstance(entry[1], JobProgressed)):
        run = list(group)
        for sequence, event in run[-1:] if is_progress else run:
            lines.append(_line(event, reasons.get(sequence, "")))
        if is_progress and len(run) > 1:
            lines[-1] += f"  (the last of {len(run)})"
    return lines


def _line(event: Event | UnknownEvent, ignored: str) -> str:
    if isinstance(event, UnknownEvent):
        why = f"unreadable, ignored: {ignored}" if ignored else "of a later version"
        return f"  {'':8}  {event.type} ({why})"
    happening = f"ignored: {ignored}" if ignored else happened(event)
    return f"  {wording.clock(event.at)}  {event.name:<13}  {happening}".rstrip()


def _plain(events: Sequence[tuple[int, Event | UnknownEvent]]) -> list[Any]:
    reasons = dict(ignored_events(events))
    return [
        {"sequence": sequence, **_fields(event)}
        | ({"ignored": reasons[sequence]} if sequence in reasons else {})
        for sequence, event in events
    ]


def _fields(event: Event | UnknownEvent) -> dict[str, Any]:
    if isinstance(event, UnknownEvent):
        if event.unreadable:
            return {"type": event.type, "bytes": len(event.raw)}
        fields: dict[str, Any] = msgspec.json.decode(event.raw)
        return fields
    tree: dict[str, Any] = msgspec.to_builtins(event)
    tree.pop("payload", None)  # shown decoded, as the arguments
    tree.pop("result", None)
    return tree


def _progress(record: JobRecord) -> str:
    return f"{record.done} of {record.total or '?'}" if record.done is not None else ""


def _tries(tries: int) -> str:
    return f" of {tries}" if tries else ""


def _optional(title: str, text: str) -> list[str]:
    return [f"{title:<9}  {text}"] if text else []


def _indented(text: str) -> list[str]:
    return [f"  {each}" for each in text.splitlines()]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
