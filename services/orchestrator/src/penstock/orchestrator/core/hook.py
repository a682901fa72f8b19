"""Which events a hook is for, and what it is given. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence

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


def notice(
    name: str,
    hook: HookTable,
    event: Event | UnknownEvent,
    hook_jobs: Collection[str] = (),
    record: JobRecord | None = None,
) -> JobNotice | None:
    """What a hook is given for an event; None where it is not for it.

    Args:
        name: of the hook.
        hook_jobs: the functions that hooks dispatch.
        record: the job before the event, whose function and queue count where the event names none:
            that of a cancelled job has no queue. Without it, those may be any.
    """
    if not isinstance(event, tuple(EVENTS[occasion] for occasion in hook.on)):
        return None
    assert isinstance(event, JobEvent)
    function = getattr(event, "function", "") or (record.function if record else "")
    queue = getattr(event, "queue", "") or (record.queue if record else "")
    if event.job_id.startswith(_MARK) and (not function or function in hook_jobs):
        return None  # else a hook whose job fails would run for ever
    if not hook.fits(function, queue):
        return None
    error = getattr(event, "error", None)
    return JobNotice(
        hook=name,
        event_id=event.id[:_MOST_NAME],
        event=event.name,
        at=event.at,
        job_id=event.job_id,
        function=function[:_MOST_NAME],
        queue=queue[:_MOST_NAME],
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


def before(history: Sequence[tuple[int, Event | UnknownEvent]], sequence: int) -> JobRecord | None:
    """The job before the event that is stored at ``sequence``.

    None for a job that never was, and for one whose earlier events have left the log: the two look
    the same.

    Args:
        history: of the job: ``(sequence, event)``, oldest first.
    """
    return lifecycle.fold([entry for entry in history if entry[0] < sequence])


def may_follow(record: JobRecord | None, sequence: int, event: JobEvent) -> bool:
    """Whether an event follows from those of its job before it; else it is passed over.

    Args:
        record: the job before it.
        sequence: at which the event is stored.
    """
    try:
        return record is not None and bool(lifecycle.evolve(record, event, sequence))
    except IllegalTransition:
        return False


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
