"""The event log as the reconciler reads it: cheaply, since every event passes through here."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec

from penstock.bus.protocol import Bus, Stored
from penstock.events.envelope import Instant, Int64, UnknownEvent, check_instant
from penstock.events.job import JOB_EVENTS, JobCarried
from penstock.events.subjects import Subjects, check_name
from penstock.jobs.event_store.event_log import read_event
from penstock.jobs.lifecycle import State
from penstock.orchestrator.core.unresolved import AWAITED, Step
from penstock.runtime.poison_messages import skipping_poison


class _Fields(msgspec.Struct):
    """The few fields that are needed; a job's payload is not even decoded."""

    type: str
    job_id: str
    queue: str = ""
    due_at: Instant | None = None


class _Carried(msgspec.Struct):
    """The same of what took the place of a job's earlier events."""

    state: str
    changed_by: Int64
    available_at: Instant
    wakes_at: Instant | None = None


_EVENT_OF = {
    State.WAITING: "JobReleased",
    State.SCHEDULED: "JobRetrying",
    State.RETRYING: "JobRetrying",
    State.RUNNING: "JobStarted",
    State.SUSPENDED: "WorkflowAdvanced",
    State.DEAD: "JobDead",
    State.COMPLETED: "JobCancelled",
    State.CANCELLED: "JobCancelled",
}
"""An event that calls for the same message as a job in that state."""
_UNTRUSTED = "WorkflowResumed"
"""Each client may store it, with any time and queue, and what it names does not count for the fold:
both are read from the workflow's record."""
_decode_carried = msgspec.json.Decoder(_Carried).decode
_CARRIED = JobCarried.__name__
_decode = msgspec.json.Decoder(_Fields).decode


async def steps(bus: Bus, subjects: Subjects, start: int) -> AsyncIterator[Step]:
    """Every event that opens or closes a transition, from a sequence on, without end."""
    patterns = [subjects.events("job", "*", name) for name in (*AWAITED, _CARRIED)]
    stream: Any = bus.follow(subjects.events_stream, patterns, max(start, 1))
    async with aclosing(stream) as messages:
        async for stored in messages:
            transition = None
            with skipping_poison(f"event {stored.sequence}"):
                transition = step(stored)
            if transition is not None:
                yield transition


def step(stored: Stored) -> Step | None:
    """The step that an event is; None for what the fold of its job passes over unread.

    An event that shows that nothing is awaited any more is decoded as a whole: a forged message of
    that subject must not keep a job from being reconciled.
    """
    _, job_id, event = stored.subject.rsplit(".", 2)
    is_untrusted = event == _UNTRUSTED
    if is_untrusted or not AWAITED.get(event):
        if isinstance(read_event(stored, JOB_EVENTS), UnknownEvent):
            return None
        if is_untrusted:
            at = stored.at.timestamp()
            return Step(job_id=job_id, event=event, sequence=stored.sequence, at=at)
    try:
        fields = _decode(stored.body)
        check_instant("due_at", fields.due_at)
        if fields.queue:
            check_name("queue", fields.queue)
    except (ValueError, RecursionError):  # also text that is none; BadName, MalformedEvent
        return None
    if (fields.type, fields.job_id) != (event, job_id):
        return None
    if event == _CARRIED:
        return _carried_step(stored, fields)
    return Step(
        job_id=job_id,
        event=event,
        sequence=stored.sequence,
        at=stored.at.timestamp(),
        queue=fields.queue,
        due_at=fields.due_at.timestamp() if fields.due_at else None,
    )


def _carried_step(stored: Stored, fields: _Fields) -> Step | None:
    try:
        carried = _decode_carried(stored.body)
        check_instant("available_at", carried.available_at)
        check_instant("wakes_at", carried.wakes_at)
        event = _EVENT_OF[State(carried.state)]
    except ValueError:  # a state of a later version
        return None
    due_at = {"JobRetrying": carried.available_at, "WorkflowAdvanced": carried.wakes_at}.get(event)
    return Step(
        job_id=fields.job_id,
        event=event,
        sequence=stored.sequence,
        at=stored.at.timestamp(),
        queue=fields.queue,
        due_at=due_at.timestamp() if due_at else None,
        carried_from=carried.changed_by,
    )
