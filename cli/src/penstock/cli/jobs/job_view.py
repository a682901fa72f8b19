"""Jobs as text: the columns of a list, one job with its timeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import msgspec

from penstock.cli.output import Column
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JobProgressed
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import ignored_events
from penstock.views import wording
from penstock.views.event_text import happened
from penstock.views.job_history import JobDetail, job_detail, progress

_LEAST_NAME = 13
"""Characters of `JobDispatched`, with which each timeline begins."""
COLUMNS = (
    Column("id", lambda row: row.id),
    Column("state", lambda row: row.state, rank=1),
    Column("function", lambda row: row.function, rank=1, sentence=True),
    Column("queue", lambda row: row.queue, rank=3),
    Column("attempt", lambda row: str(row.attempt), number=True, rank=3),
    Column("dispatched", lambda row: wording.clock(row.dispatched_at)),
    Column("ran", lambda row: wording.seconds(row.run_seconds), number=True),
    Column("worker", lambda row: row.worker or wording.UNKNOWN, rank=3),
    Column(
        "note",
        lambda row: row.waits or wording.error(row.error) or row.progress,
        rank=1,
        sentence=True,
    ),
)


def description(view: JobView) -> list[str]:
    """One job as lines of text."""
    record, shown = view.record, job_detail(view)
    lines = [
        f"job        {record.id}",
        f"state      {record.state}, attempt {record.attempt}" + _tries(shown.tries),
        *_optional("waits", str(view.handed_on or "")),
        *_optional("workflow", f"see 'penstock workflow show {record.id}'" * record.is_workflow),
        f"function   {record.function}",
        f"queue      {record.queue}",
        f"arguments  {_json(shown.arguments)}",
        *_optional("tags", ", ".join(record.tags)),
        *_optional("priority", "" if shown.priority == "normal" else shown.priority),
        *_optional("batch", shown.batch_id),
        *_optional(
            "timeout", wording.seconds(shown.timeout_seconds) if shown.timeout_seconds else ""
        ),
        *_optional("progress", progress(record)),
        *_optional("worker", f"{record.worker} on {record.host}" if record.worker else ""),
        *_optional("reserved", wording.clock(shown.reserved_at) if shown.reserved_at else ""),
        *_optional("waited", _waited(shown)),
        *_optional("ran", _ran(shown)),
        *_optional("Spark", shown.spark_session),
        *_optional("trace", shown.trace_id),
        *_optional("result", _json(shown.result) if record.result else ""),
        "timeline",
        *_timeline(view.events),
    ]
    if record.error:
        lines += ["error", f"  {record.error.kind}: {record.error.message}"]
        lines += quoted(record.error.traceback)
    return lines


def _waited(shown: JobDetail) -> str:
    """``51 s for a worker``: before the last attempt."""
    seconds = shown.waited_seconds
    return f"{wording.seconds(seconds)} for a worker" if seconds is not None else ""


def _ran(shown: JobDetail) -> str:
    """``1.2 s, 0.4 s of CPU, at most 120 MB``: of the last attempt."""
    if not shown.job.run_seconds:
        return ""
    memory = shown.peak_memory_bytes
    parts = (
        wording.seconds(shown.job.run_seconds),
        f"{wording.seconds(shown.cpu_seconds)} of CPU" if shown.cpu_seconds else "",
        f"at most {wording.memory(memory)}" if memory else "",
    )
    return ", ".join(filter(None, parts))


def _timeline(events: Sequence[tuple[int, Event | UnknownEvent]]) -> list[str]:
    """One line an event; progress that follows on progress is one line, with the last of it."""
    reasons = dict(ignored_events(events))
    names = [event.name for _, event in events if isinstance(event, Event)]
    width = max(_LEAST_NAME, *map(len, names)) if names else _LEAST_NAME
    lines: list[str] = []
    for is_progress, group in groupby(events, lambda entry: isinstance(entry[1], JobProgressed)):
        run = list(group)
        for sequence, event in run[-1:] if is_progress else run:
            lines.append(_line(event, reasons.get(sequence, ""), width))
        if is_progress and len(run) > 1:
            lines[-1] += f"  (the last of {len(run)})"
    return lines


def _line(event: Event | UnknownEvent, ignored: str, width: int) -> str:
    if isinstance(event, UnknownEvent):
        why = f"unreadable, ignored: {ignored}" if ignored else "of a later version"
        return f"  {'':8}  {event.type} ({why})"
    happening = f"ignored: {ignored}" if ignored else happened(event)
    return f"  {wording.clock(event.at)}  {event.name:<{width}}  {happening}".rstrip()


def _tries(tries: int) -> str:
    return f" of {tries}" if tries else ""


def _optional(title: str, text: str | float | None) -> list[str]:
    return [f"{title:<9}  {text}"] if text else []


def quoted(text: str) -> list[str]:
    """The lines of a text from outside, each marked, so that none passes for one of ours."""
    return [f"  | {line}" for line in text.splitlines()]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
