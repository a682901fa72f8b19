"""Builders for the tests of jobs: events of one job, and stories made of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from penstock.events.job import (
    JobCancelled,
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
from penstock.events.workflow_memo import (
    InlineResult,
    ScheduledStep,
    WaitGroup,
)
from penstock.jobs import lifecycle
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.payloads import payload

JOB = "j1"
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BROKEN = JobError(kind="builtins.ValueError", message="no such table")

_FIELDS: dict[type[JobEvent], dict[str, Any]] = {
    JobDispatched: {"queue": "reports", "function": "f", "payload": b"call", "tries": 3},
    JobStarted: {"queue": "reports", "attempt": 1, "host": "h", "worker": "w", "message": 10},
    JobProgressed: {"done": 1, "total": 2},
    JobCommitted: {"output": "orders", "location": "/lake/_orders.j1.2"},
    JobCompleted: {"queue": "reports", "attempt": 1, "run_seconds": 0.5, "result": b"\x01"},
    JobFailed: {"queue": "reports", "attempt": 1, "error": BROKEN, "run_seconds": 0.5},
    JobRetrying: {"attempt": 2, "due_at": NOW + timedelta(seconds=30)},
    JobReleased: {"reason": "asked to end"},
    JobRecovered: {"reason": "lost"},
    JobCancelled: {"reason": "not wanted"},
    JobDead: {"queue": "reports", "error": BROKEN},
    JobRevived: {"queue": "reports", "function": "f", "payload": b"call", "tries": 3},
    JobMoved: {"queue": "others", "from_queue": "reports", "payload": b"moved"},
    JobTagged: {"added": ("seen",)},
    WorkflowContinued: {"queue": "workflows", "generation": 1, "payload": b""},
    WorkflowCancelling: {"reason": "", "until": NOW},
    StepsScheduled: {"number": 2, "now": NOW},
    StepRecorded: {"number": 1, "now": NOW, "inline": InlineResult("rate", "fetch", b"\x01")},
    WorkflowAdvanced: {
        "queue": "reports",
        "number": 1,
        "now": NOW,
        "scheduled": (ScheduledStep(n=0, key="charge", payload=b"call"),),
        "wait": (WaitGroup((0,)),),
    },
    WorkflowBlocked: {"queue": "reports", "reason": "renamed", "due_at": NOW},
    WorkflowFixed: {"queue": "reports", "forgotten": ("charge",)},
    WorkflowPaused: {"reason": "wrong day"},
    WorkflowResumed: {"queue": "reports"},
}

EVENT_TYPES = tuple(_FIELDS)


def event(kind: type[JobEvent], **fields: Any) -> JobEvent:
    """An event of :data:`JOB` with likely fields."""
    return kind(job_id=JOB, at=NOW, **{**_FIELDS[kind], **fields})


def told(*events: JobEvent | type[JobEvent]) -> JobRecord:
    """The record after these, stored at 1, 2, …; a type stands for a likely event of it."""
    made = [each if isinstance(each, JobEvent) else event(each) for each in events]
    record = lifecycle.fold(enumerate(made, 1))
    assert record is not None
    return record


def call(**fields: Any) -> payload.Payload:
    usual = {
        "id": JOB,
        "function": "f",
        "queue": "reports",
        "arguments": msgspec.Raw(msgspec.msgpack.encode({})),
        "dispatched_at": NOW.timestamp(),
    }
    return payload.Payload(**{**usual, **fields})
