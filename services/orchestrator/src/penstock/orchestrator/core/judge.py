"""Whether a step's second half is missing, judged from what the broker holds. Pure."""

from __future__ import annotations

from enum import Enum, auto

from penstock.orchestrator.core.unresolved import Awaits, Entry


class Verdict(Enum):
    RESOLVED = auto()
    """The broker holds it: it will have its effect."""
    LATER = auto()
    """Not decidable yet."""
    MISSING = auto()
    """It seems to be lost: read the job's own events, then store it again."""


def in_line(entry: Entry, head_at: float | None, patience_seconds: float) -> Verdict:
    """A queue is a line: while its first waiting message is older than the job, the job may wait.

    One that is missing here may still be claimed by a worker that has not started it.

    Args:
        head_at: when the queue's first waiting message was stored, POSIX seconds by the broker's
            clock; None when none waits.
    """
    if head_at is None or head_at > entry.since + patience_seconds:
        return Verdict.MISSING
    return Verdict.LATER


def scheduled(entry: Entry, exists: bool, now: float, patience_seconds: float) -> Verdict:
    """A schedule that is there fires by itself. One that is not has fired, or never was.

    One that is there long after its time will not fire: the broker that began to fire it died.

    Args:
        exists: whether the broker holds the schedule.
        now: POSIX seconds by the broker's clock.
        patience_seconds: how late a schedule may fire.
    """
    due_at = entry.due_at or entry.since
    if due_at > now:
        return Verdict.RESOLVED if exists else Verdict.MISSING
    return Verdict.MISSING if exists and due_at + patience_seconds < now else Verdict.LATER


def fired(entry: Entry, patience_seconds: float) -> None:
    """The schedule is gone and was due: from then on the job is expected in line."""
    entry.awaits = Awaits.QUEUE_MESSAGE
    entry.since = max(entry.since, entry.due_at or 0.0)
    entry.check_at = entry.since + patience_seconds
