"""Jobs out of the event log: the latest ones as rows, one job with its history."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from penstock.bus import lookback
from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JOB_EVENTS, JobCarried, JobCompleted, JobDispatched, JobError
from penstock.events.subjects import Subjects
from penstock.jobs.client import Client
from penstock.jobs.errors import JobsError
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import JobRecord, State, fold, ignored_events, leads_to
from penstock.jobs.payloads import redaction

_READ_AT_ONCE = 20

History = list[tuple[int, Event | UnknownEvent]]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """One job in a list; ``run_seconds`` is of the last attempt."""

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


class JobDetail(msgspec.Struct, frozen=True, kw_only=True):
    """One job with its history; ``arguments`` and ``result`` are plain values."""

    job: JobRow
    tags: tuple[str, ...]
    tries: int
    priority: str
    batch_id: str
    timeout_seconds: float | None
    reserved_at: datetime | None
    cpu_seconds: float
    peak_memory_bytes: int
    spark_session: str
    trace_id: str
    arguments: Any
    result: Any
    error: JobError | None
    timeline: list[Any]


def job_row(record: JobRecord) -> JobRow:
    """A job as one entry of a list."""
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
    )


def job_detail(view: JobView) -> JobDetail:
    """A job with its history."""
    return JobDetail(
        job=job_row(view.record),
        tags=view.record.tags,
        tries=view.record.tries,
        priority=view.priority,
        batch_id=view.batch_id,
        timeout_seconds=view.timeout_seconds,
        reserved_at=view.reserved_at,
        cpu_seconds=view.cpu_seconds,
        peak_memory_bytes=view.peak_memory_bytes,
        spark_session=_spark_session(view),
        trace_id=view.trace_id,
        arguments=redaction.arguments(view.record.payload),
        result=redaction.result(view.record.result, view.record.payload),
        error=view.record.error,
        timeline=_plain(view.events),
    )


def _spark_session(view: JobView) -> str:
    completed = (event for _, event in view.events if isinstance(event, JobCompleted))
    return next((event.spark_session or "" for event in completed), "")


def progress(record: JobRecord) -> str:
    """``3 of 10``; empty where the job reported none."""
    return f"{record.done} of {record.total or '?'}" if record.done is not None else ""


class Wanted(NamedTuple):
    """Which jobs are listed; None is any."""

    state: State | None
    queue: str | None
    limit: int

    def fits(self, record: JobRecord) -> bool:
        return self.state in {None, record.state} and self.queue in {None, record.queue}


async def newest_jobs(bus: Bus, subjects: Subjects, wanted: Wanted) -> list[JobRecord]:
    """At most ``wanted.limit`` jobs, those that changed last first."""
    reader = _Reader(Client(bus, prefix=subjects.prefix), wanted.state)
    fitting: list[JobRecord] = []
    everything = subjects.events(noun="job")
    async for messages, is_complete in lookback.back(bus, subjects.events_stream, everything):
        fitting = []
        async for record in reader.records(messages, is_complete):
            if wanted.fits(record):
                fitting.append(record)
                if len(fitting) == wanted.limit:
                    return fitting
    return fitting


class _Reader:
    """Folds recent events to records; reads a job whose first events are not among them, once.

    Args:
        client: reads the history of one job.
        state: jobs whose recent events lead to other states are not read; None for any.
    """

    def __init__(self, client: Client, state: State | None) -> None:
        self._client, self._state = client, state
        self._read: dict[str, JobRecord | None] = {}

    async def records(
        self, messages: Sequence[Stored], is_complete: bool
    ) -> AsyncIterator[JobRecord]:
        """The jobs of messages, the last changed first.

        Args:
            messages: events of jobs, oldest first.
            is_complete: the log holds no events before these.
        """
        histories = list(reversed(_by_job(messages).items()))
        for start in range(0, len(histories), _READ_AT_ONCE):
            some = histories[start : start + _READ_AT_ONCE]
            for record in await asyncio.gather(
                *(self._record(job_id, history, is_complete) for job_id, history in some)
            ):
                if record is not None:
                    yield record

    async def _record(self, job_id: str, history: History, is_complete: bool) -> JobRecord | None:
        """The job; None where its first events left the log, so that its state is unknown."""
        if is_complete or isinstance(history[0][1], JobDispatched | JobCarried):
            return fold(history)
        if self._state and not any(leads_to(event, self._state) for _, event in history):
            return None
        if job_id not in self._read:
            try:
                self._read[job_id] = (await self._client.job(job_id)).record
            except JobsError:
                self._read[job_id] = None
        return self._read[job_id]


def _by_job(messages: Sequence[Stored]) -> dict[str, History]:
    """The events of each job; the job of the latest event comes last."""
    histories: dict[str, History] = {}
    for stored in messages:
        job_id = stored.subject.split(".")[-2]
        event = read_event(stored, JOB_EVENTS)
        history = histories.pop(job_id, [])
        history.append((stored.sequence, event))
        histories[job_id] = history
    return histories


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
