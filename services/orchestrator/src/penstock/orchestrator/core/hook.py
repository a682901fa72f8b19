"""Which events a hook is for, and what it is given. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import TypeGuard

from penstock.config.hooks import HookTable
from penstock.config.masking import MASK, hosts_only, masked
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JobCancelled, JobCompleted, JobDead, JobEvent, JobFailed
from penstock.events.notice import JobNotice
from penstock.jobs import lifecycle
from penstock.jobs.errors import IllegalTransition
from penstock.jobs.lifecycle import JobRecord

EVENTS: dict[str, type[JobEvent]] = {
    "failed": JobFailed,
    "dead": JobDead,
    "completed": JobCompleted,
    "cancelled": JobCancelled,
}
"""By the names that settings have for them."""
_MARK = "hook_"
"""What the id of a hook's job begins with."""
_SHORTEST_SECRET = 4
_MOST_NAME, _MOST_ERROR, _MOST_TRACEBACK = 200, 4_000, 16_000
"""Characters of a notice's texts: an event may have a megabyte of each, endpoints refuse that."""


def may_concern(event: Event | UnknownEvent, hook: HookTable) -> TypeGuard[JobEvent]:
    """Whether a hook may be for an event, as far as the event says without its job."""
    if not isinstance(event, tuple(EVENTS[occasion] for occasion in hook.on)):
        return False
    function, queue = getattr(event, "function", ""), getattr(event, "queue", "")
    return (not function or _fits(function, hook.functions)) and (
        not queue or _fits(queue, hook.queues)
    )


def job_before(
    history: Sequence[tuple[int, Event | UnknownEvent]], sequence: int, event: JobEvent
) -> JobRecord | None:
    """The job as its events before this one add up; None where the event does not follow from them.

    None too for a job that never was, and for one whose earlier events have left the log: the two
    look the same.

    Args:
        history: of the job: ``(sequence, event)``, oldest first.
        sequence: at which the event is stored.
    """
    record = lifecycle.fold([entry for entry in history if entry[0] < sequence])
    try:
        return record if record is not None and lifecycle.evolve(record, event, sequence) else None
    except IllegalTransition:
        return None


def notice(
    name: str, hook: HookTable, event: JobEvent, job: JobRecord, hook_jobs: Collection[str] = ()
) -> JobNotice | None:
    """What a hook is given for an event; None where it is not for the job.

    Args:
        name: of the hook.
        job: as it was before the event. Its function and queue count: not all events name them.
        hook_jobs: the functions that hooks dispatch.
    """
    if job.id.startswith(_MARK) and job.function in hook_jobs:
        return None  # else a hook whose job fails would run for ever
    if not (_fits(job.function, hook.functions) and _fits(job.queue, hook.queues)):
        return None
    error = getattr(event, "error", None)
    return JobNotice(
        hook=name,
        event_id=event.id[:_MOST_NAME],
        event=event.name,
        at=event.at,
        job_id=event.job_id,
        function=job.function[:_MOST_NAME],
        queue=job.queue[:_MOST_NAME],
        attempt=getattr(event, "attempt", 0),
        will_retry=bool(getattr(event, "will_retry", False)),
        error_type=error.kind[:_MOST_NAME] if error else "",
        error=_cut(error.message if error else getattr(event, "reason", ""), _MOST_ERROR),
        traceback=_cut(error.traceback, _MOST_TRACEBACK) if error else "",
    )


def error_text(hook: HookTable, error: Exception) -> str:
    """Why a notice was not delivered, without what the settings of the hook keep to themselves.

    A command may have printed its arguments or an address; keys of workers may read what is stored.
    """
    text = str(error)
    for secret in sorted((hook.authorization, *hook.command[1:]), key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, MASK)
    shown: str = hosts_only(masked(text))
    return shown


def job_id(of: JobNotice) -> str:
    """The id of the job that a notice leads to: the same each time, so that it is accepted once."""
    digest = hashlib.blake2b(f"{of.hook}/{of.event_id}".encode(), digest_size=16)
    return f"{_MARK}{digest.hexdigest()}"


def _cut(text: str, most: int) -> str:
    """The text without its middle, where it has more than ``most`` characters."""
    if len(text) <= most:
        return text
    left_out = f"… {len(text) - most:,} characters left out …"
    return f"{text[: most // 2]}\n{left_out}\n{text[-(most // 2) :]}"


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
