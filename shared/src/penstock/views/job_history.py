"""Jobs out of the event log: the latest ones as rows, one job with its history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JobCompleted, JobError
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord, ignored_events
from penstock.jobs.payloads import redaction
from penstock.jobs.reading.attempt_times import attempt_times
from penstock.jobs.reading.handed_on import HandedOn


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a list; ``run_seconds`` is of the last attempt, ``waits`` says why it waits."""

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
    waits: str = ""


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One job with its history.

    Attributes:
        waited_seconds: from when its last attempt could start until it did; None before it did.
        arguments: plain values.
        result: a plain value.
    """

    job: JobRow
    tags: tuple[str, ...]
    tries: int
    priority: str
    batch_id: str
    timeout_seconds: float | None
    reserved_at: datetime | None
    waited_seconds: float | None
    cpu_seconds: float
    peak_memory_bytes: int
    spark_session: str
    trace_id: str
    arguments: Any
    result: Any
    error: JobError | None
    timeline: list[Any]
    handed_on: HandedOn | None = None


def job_row(view: JobView) -> JobRow:
    """A job as one entry of a list."""
    record = view.record
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
        progress=progress(record),
        error=f"{record.error.kind}: {record.error.message}" if record.error else "",
        waits=str(view.handed_on or ""),
    )


def job_detail(view: JobView) -> JobDetail:
    """A job with its history."""
    return JobDetail(
        job=job_row(view),
        tags=view.record.tags,
        tries=view.record.tries,
        priority=view.priority,
        batch_id=view.batch_id,
        timeout_seconds=view.timeout_seconds,
        reserved_at=view.reserved_at,
        waited_seconds=attempt_times(view.record).waited_seconds,
        cpu_seconds=view.cpu_seconds,
        peak_memory_bytes=view.peak_memory_bytes,
        spark_session=_spark_session(view),
        trace_id=view.trace_id,
        arguments=redaction.arguments(view.record.payload),
        result=redaction.result(view.record.result, view.record.payload),
        error=view.record.error,
        timeline=_plain(view.events),
        handed_on=view.handed_on,
    )


def _spark_session(view: JobView) -> str:
    completed = (event for _, event in view.events if isinstance(event, JobCompleted))
    return next((event.spark_session or "" for event in completed), "")


def progress(record: JobRecord) -> str:
    """``3 of 10``; empty where the job reported none."""
    return f"{record.done} of {record.total or '?'}" if record.done is not None else ""


def _plain(events: Sequence[tuple[int, Event | UnknownEvent]]) -> list[Any]:
    ignored = dict(ignored_events(events))
    return [
        {"sequence": sequence, **_fields(event)}
        | ({"ignored": ignored[sequence]} if sequence in ignored else {})
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
