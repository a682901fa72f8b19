"""The messages that follow from a job's state: in its queue, in the schedule, among the dead.

Event first, queue derived: each can be derived from the job's events at any time, and a duplicate
does no harm, since a worker's first act is a compare-and-set on the sequence the message carries.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime

import msgspec

from penstock.bus.protocol import Delivery, Expect, Headers, Outgoing
from penstock.events.brief import brief, brief_fields
from penstock.events.job import JobError
from penstock.events.subjects import Subjects
from penstock.jobs.lifecycle import JobRecord, State
from penstock.jobs.running import worker_loss

JOB = "Penstock-Job"
SEQUENCE = "Penstock-Seq"
ATTEMPT = "Penstock-Attempt"
BESIDE = "Penstock-Beside"
"""How many jobs may run in its worker, itself included, since it lost one: see `worker_loss`."""
LOCKED_SINCE = "Penstock-Locked-Since"
"""When a worker first lacked the job's key, POSIX seconds by the broker's clock."""
UNKNOWN_SINCE = "Penstock-Unknown-Since"
"""When a worker first did not know the job's function or arguments, likewise."""
UNKNOWN_TO = "Penstock-Unknown-To"
"""The versions of the code that do not know it: ``build=host.worker``, separated by commas."""
REASON = "Penstock-Reason"
"""Why the last worker that got it handed it on, for people."""
DEAD_AT = "Penstock-Dead-At"
"""When a job that is handed on will be dead, POSIX seconds."""
AVAILABLE = "Penstock-Available"
"""Since when a job that was handed on could have started, likewise."""

RECORDED = "Penstock-Recorded"
"""How many advances and inline steps a workflow had recorded when its message was made."""
_MOST_RECORDED, _MOST_DIGITS = 100_000, 10
ENDED = "Penstock-Ended"
"""Numbers of steps that had ended when a workflow was woken; these are read ahead."""
_MOST_ENDED = 20
VERSION = "Penstock-Version"
"""The version of the code that a workflow is to go on with; none where the newest begins it."""


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that will not run again by itself, with everything needed to run it again.

    Attributes:
        payload: the encoded call, or the unreadable message itself.
        commits: committed output, by name.
        at: POSIX seconds of the death.
        trace: W3C ``traceparent`` of the dispatch, if it was traced.
    """

    job_id: str
    queue: str
    function: str
    payload: bytes
    error: JobError
    attempts: int
    at: float
    tags: tuple[str, ...] = ()
    trace: str = ""
    commits: dict[str, str] = {}

    __repr__ = brief
    __rich_repr__ = brief_fields


def headers(job_id: str, sequence: int, attempt: int, trace: Mapping[str, str]) -> Headers:
    """Headers of a job's queue message."""
    fields = {JOB: job_id, SEQUENCE: str(sequence), **trace}
    if attempt > 1:
        fields[ATTEMPT] = str(attempt)
    return fields


def headers_of(record: JobRecord, trace: Mapping[str, str]) -> Headers:
    """Headers of the message that a job has in its present state."""
    fields = headers(record.id, record.sequence, record.next_attempt, trace)
    if beside := worker_loss.most_beside(record):
        fields = {**fields, BESIDE: str(beside)}
    fields = {**fields, **version_header(record.code_version)}
    workflow = record.workflow
    if workflow is not None and not (workflow.fixes or workflow.cancelling):
        fields = {**fields, **recorded_header(workflow.advances, workflow.inline_steps)}
    return fields


def version_header(version: int) -> dict[str, str]:
    """The header that names the version of a workflow's code; none where that is not known."""
    return {VERSION: str(version)} if version else {}


def version(fields: Mapping[str, str]) -> int:
    """The version of a workflow's code that a message names; 0 where it names none."""
    text = fields.get(VERSION, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else 0


def recorded_header(advances: int, inline_steps: int) -> dict[str, str]:
    """The header of a message that is made where a workflow has recorded so much."""
    return {RECORDED: f"{advances} {inline_steps}"}


def ended_header(steps: Collection[int]) -> dict[str, str]:
    """The header that names ended steps; none where they are many."""
    is_short = 0 < len(steps) <= _MOST_ENDED
    return {ENDED: " ".join(map(str, steps))} if is_short else {}


def ended(fields: Mapping[str, str]) -> list[int]:
    """The steps that a header names."""
    numbers = fields.get(ENDED, "").split(maxsplit=_MOST_ENDED)[:_MOST_ENDED]
    return [int(n) for n in numbers if n.isascii() and n.isdigit() and len(n) <= _MOST_DIGITS]


def recorded(fields: Mapping[str, str]) -> tuple[int, int] | None:
    """What a header says that a workflow has recorded; None where that must be read."""
    try:
        advances, inline_steps = map(int, fields.get(RECORDED, "").split())
    except ValueError:
        return None
    is_bounded = 0 <= advances <= _MOST_RECORDED and 0 <= inline_steps <= _MOST_RECORDED
    return (advances, inline_steps) if is_bounded else None


def ready(subjects: Subjects, record: JobRecord, trace: Mapping[str, str]) -> Outgoing:
    """The queue message of a job that can start now."""
    return Outgoing(
        subjects.queue(record.queue),
        record.payload,
        headers_of(record, trace),
    )


def scheduled(subjects: Subjects, record: JobRecord, trace: Mapping[str, str]) -> Outgoing:
    """A schedule kept by the broker, which puts the job into its queue when it is due.

    Not a delayed NAK, which counts against the limit of claimed messages.
    """
    due = record.available_at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Outgoing(
        subjects.schedule(record.queue, record.id),
        record.payload,
        {
            **headers_of(record, trace),
            "Nats-Schedule": f"@at {due}",
            "Nats-Schedule-Target": subjects.queue(record.queue),
        },
    )


def postponed(
    subjects: Subjects,
    delivery: Delivery,
    job_id: str,
    due: datetime | None,
    more_headers: Mapping[str, str],
) -> Outgoing:
    """The same message, delivered again at a later time, or at once where none is given.

    Its headers for the broker are not repeated: a forged message would have them obeyed with this
    process' rights.
    """
    kept = {
        name: value
        for name, value in delivery.headers.items()
        if not name.casefold().startswith("nats-")
    }
    headers = {**kept, **more_headers}
    if due is None:
        return Outgoing(delivery.subject, delivery.body, headers)
    queue = delivery.subject.rpartition(".")[2]
    at = due.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return Outgoing(
        subjects.schedule(queue, job_id),
        delivery.body,
        {**headers, "Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": delivery.subject},
    )


def due_at(headers: Mapping[str, str]) -> float | None:
    """When a schedule fires, POSIX seconds; None for one that is not at a time."""
    at = headers.get("Nats-Schedule", "").removeprefix("@at ")
    try:
        return datetime.fromisoformat(at).timestamp()
    except ValueError:
        return None


def since(delivery: Delivery, header: str) -> float:
    """The time in a header of a message that was postponed, else when it was stored.

    POSIX seconds by the broker's clock, as :attr:`Delivery.stored_at` is.
    """
    value = delivery.headers.get(header)
    if value is None:
        return delivery.stored_at
    try:
        at = float(value)
    except ValueError:
        return delivery.stored_at
    return at if 0 < at < delivery.stored_at else delivery.stored_at


def dead_letter(
    subjects: Subjects, record: JobRecord, trace: Mapping[str, str], *, with_payload: bool = True
) -> Outgoing:
    """The dead letter of a dead job; of the first death not stored over one that is there.

    One that was stored twice and is deleted could come back when the broker is killed: what a
    message was replaced by leaves no trace (docs/decisions/0047).

    Args:
        subjects: of this installation.
        record: the job.
        trace: trace context of its dispatch.
        with_payload: False for one that is too large for the broker, since it stands in base64.
    """
    error = record.error or JobError(kind="unknown", message="no error was recorded")
    if not with_payload:
        left_out = f"; its {len(record.payload)} bytes of arguments are too large for a dead letter"
        error = msgspec.structs.replace(error, message=error.message + left_out)
    letter = DeadLetter(
        job_id=record.id,
        queue=record.queue,
        function=record.function,
        payload=record.payload if with_payload else b"",
        error=error,
        attempts=record.attempt,
        at=(record.finished_at or record.dispatched_at).timestamp(),
        tags=record.tags,
        trace=trace.get("traceparent", ""),
        commits=record.commits,
    )
    subject = subjects.dead(record.queue, record.id)
    # What is there in a later life may be the letter of an earlier death.
    expect = Expect(0, subject) if record.life == 1 else None
    return Outgoing(subject, msgspec.json.encode(letter), {}, expect)


def follow_up(
    subjects: Subjects, record: JobRecord, now: datetime, trace: Mapping[str, str]
) -> Outgoing | None:
    """What must exist outside the event log for a job in this state; None for nothing."""
    if record.is_paused:
        return None  # the client that resumes it stores one
    if record.state is State.SUSPENDED and record.wakes_at is None:
        return None  # the orchestrator stores it once what the workflow waits for has ended
    later = (State.SCHEDULED, State.RETRYING, State.SUSPENDED)
    if record.state in later and record.available_at > now:
        return scheduled(subjects, record, trace)
    if record.state in (*later, State.WAITING):
        return ready(subjects, record, trace)
    if record.state is State.DEAD:
        return dead_letter(subjects, record, trace)
    return None
