"""Logs of events as Hypothesis draws them: in order, out of order, and of versions to come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st

from penstock.console.core.log_entry import LogEntry
from penstock.events.batch import BatchClosed, BatchCompleted, BatchCreated, BatchProgressed, Counts
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.graph import GraphCompleted, GraphPaused, GraphResumed
from penstock.events.job import (
    JobCancelled,
    JobCarried,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
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
from penstock.events.queue import QueuePaused, QueueResumed
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.jobs.payloads import payload
from penstock.jobs.payloads.call_digest import call_digest

BEGIN = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


def call(function: str, **arguments: Any) -> bytes:
    """An encoded call."""
    return payload.encode(
        payload.Payload(
            id="j",
            function=function,
            queue="mail",
            arguments=msgspec.Raw(msgspec.msgpack.encode(arguments)),
            dispatched_at=0.0,
        )
    )


ARGUMENTS = {
    call("send", table="orders", day=3): ("table=orders",),
    call("send", table=["orders", "items"]): ("table=orders", "table=items"),
}
"""Some calls, and what is kept of them where ``table`` is searched."""
_ORDERS, _BOTH = ARGUMENTS
_ERROR = JobError(kind="builtins.TimeoutError", message="late")


def _job_events(key: str) -> list[tuple[type[Event], dict[str, Any]]]:
    called = {"queue": "mail--high", "function": "send", "payload": b"call"}
    started = {"queue": "mail", "attempt": 1, "host": "h1", "worker": "w1"}
    return [
        (JobDispatched, {**called, "tags": ("nightly",), "tries": 3}),
        (JobDispatched, {**called, "due_at": BEGIN + timedelta(hours=1)}),
        (JobDispatched, {**called, "payload": _ORDERS}),
        (JobRevived, {**called, "payload": _BOTH}),
        (JobStarted, started),
        (JobStarted, {**started, "call": call_digest(b"call")}),
        (JobStarted, {**started, "host": "h2", "call": call_digest(b"other")}),
        (JobProgressed, {"done": 2, "total": 5}),
        (JobFailed, {"queue": "mail", "attempt": 1, "error": _ERROR}),
        (JobRetrying, {"attempt": 2, "due_at": BEGIN + timedelta(minutes=5)}),
        (JobReleased, {"reason": "scaled down"}),
        (JobRecovered, {"reason": "w1 was lost"}),
        (JobRecovered, {"reason": "w1 was lost", "due_at": BEGIN + timedelta(minutes=9)}),
        (JobMoved, {"queue": "post", "from_queue": "mail", "payload": b"other"}),
        (JobCompleted, {"queue": "mail", "attempt": 1, "run_seconds": 0.25}),
        (JobDead, {"queue": "mail", "function": "send", "error": _ERROR, "attempt": 3}),
        (JobCancelled, {"reason": "not needed"}),
        (JobRevived, called),
        (JobTagged, {"added": ("seen",), "removed": ("nightly",)}),
        (
            JobCarried,
            {
                **called,
                "state": "running",
                "dispatched_at": BEGIN,
                "available_at": BEGIN,
                "changed_by": 1,
                "life_from": 1,
            },
        ),
    ]


_FAMILIES: dict[str, list[tuple[type[Event], dict[str, Any]]]] = {
    "job": _job_events(""),
    "batch": [
        (BatchCreated, {"title": "import"}),
        (BatchClosed, {}),
        (BatchProgressed, {"counts": Counts(pending=3, completed=1)}),
        (BatchCompleted, {"counts": Counts(completed=4)}),
    ],
    "graph": [(GraphPaused, {}), (GraphResumed, {}), (GraphCompleted, {})],
    "queue": [(QueuePaused, {"reason": "closed"}), (QueueResumed, {})],
    "pool": [
        (
            ScalingDecisionMade,
            {
                "current": 1,
                "target": 2,
                "strategy": "hybrid",
                "sla_seconds": 5.0,
                "reasons": (
                    Reason(step="strategy", rule="hybrid.drain", workers=2, text="2: why"),
                ),
            },
        )
    ],
}


@st.composite
def logs(
    draw: st.DrawFn,
    nouns: tuple[str, ...] = tuple(_FAMILIES),
    keys: tuple[str, ...] = ("a", "b", "batch_0123abcd_1"),
) -> list[LogEntry]:
    """Up to 60 entries of a few aggregates, with gaps between the sequences."""
    entries: list[LogEntry] = []
    sequence = 0
    for _ in range(draw(st.integers(1, 60))):
        sequence += draw(st.integers(1, 3))
        noun = draw(st.sampled_from(nouns))
        key = draw(st.sampled_from(keys))
        event: Event | UnknownEvent
        if draw(st.integers(0, 19)) == 0:
            event = UnknownEvent(type="JobTeleported", raw=b"{}")
        else:
            kind, fields = draw(st.sampled_from(_FAMILIES[noun]))
            at = BEGIN + timedelta(seconds=sequence)
            event = kind(**{kind.key_field: key, "at": at, **fields})
        entries.append(LogEntry(sequence, noun, key, event))
    return entries
