"""Which events a hook is for, and what it is given. Pure."""

from __future__ import annotations

import hashlib
from fnmatch import fnmatchcase

from penstock.config.hooks import HookTable
from penstock.events.envelope import Event, UnknownEvent
from penstock.events.job import JobCancelled, JobCompleted, JobDead, JobEvent, JobFailed
from penstock.events.notice import JobNotice

EVENTS: dict[str, type[JobEvent]] = {
    "failed": JobFailed,
    "dead": JobDead,
    "completed": JobCompleted,
    "cancelled": JobCancelled,
}
"""By the names that settings have for them."""
_MARK = "hook_"
"""What the id of a hook's job begins with."""


def notice(name: str, hook: HookTable, event: Event | UnknownEvent) -> JobNotice | None:
    """What a hook is given for an event; None where it is not for it.

    Args:
        name: of the hook.
    """
    if not isinstance(event, tuple(EVENTS[occasion] for occasion in hook.on)):
        return None
    assert isinstance(event, JobEvent)
    if event.job_id.startswith(_MARK):
        return None  # else a hook whose job fails would run for ever
    function, queue = getattr(event, "function", ""), getattr(event, "queue", "")
    if not (_fits(function, hook.functions) and _fits(queue, hook.queues)):
        return None
    error = getattr(event, "error", None)
    return JobNotice(
        hook=name,
        event_id=event.id,
        event=event.name,
        at=event.at,
        job_id=event.job_id,
        function=function,
        queue=queue,
        attempt=getattr(event, "attempt", 0),
        will_retry=bool(getattr(event, "will_retry", False)),
        error_type=error.kind if error else "",
        error=error.message if error else getattr(event, "reason", ""),
        traceback=error.traceback if error else "",
    )


def job_id(of: JobNotice) -> str:
    """The id of the job that a notice leads to: the same each time, so that it is accepted once."""
    digest = hashlib.blake2b(f"{of.hook}/{of.event_id}".encode(), digest_size=16)
    return f"{_MARK}{digest.hexdigest()}"


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
