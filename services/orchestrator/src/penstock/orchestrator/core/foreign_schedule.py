"""Which schedules on the broker are not of a delayed job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from penstock.events.subjects import Subjects

Header = tuple[str, str]

LONGEST_DELAY = timedelta(days=367)
"""Dispatching refuses delays of more than a year."""
_SCHEDULE, _TARGET = "Nats-Schedule", "Nats-Schedule-Target"
_ONCE = "@at "


def oddity(subject: str, headers: Sequence[Header], stored_at: datetime, subjects: Subjects) -> str:
    """Why this message of the jobs' stream is no schedule of a delayed job.

    Args:
        headers: all of them, as they are stored: the broker obeys the first of a name.

    Returns:
        Empty for a schedule as a delayed job has it, and for a job that waits in its queue.
    """
    odd = [(name, text) for name, text in headers if name.startswith(_SCHEDULE)]
    values = dict(odd)
    parts = subject.removeprefix(f"{subjects.prefix}.").split(".")
    if parts[0] == "jobs":  # the broker names the schedule in what it puts into a queue
        return "it lies in a queue and is a schedule" if _SCHEDULE in values else ""
    if parts[0] != "schedules" or len(parts) != 3:
        return ""
    if _SCHEDULE not in values:
        return "it has no time"
    if extra := sorted(values.keys() - {_SCHEDULE, _TARGET}):
        return f"it has the header {extra[0][:80]}"
    if len(odd) != len(values):
        return "a header is there twice"
    if not values[_SCHEDULE].startswith(_ONCE):
        return f"its time is {values[_SCHEDULE][:80]!r}, not one instant"
    if values.get(_TARGET) != subjects.queue(parts[1]):
        return f"its target is {values.get(_TARGET, '')[:80]!r}"
    try:
        due = datetime.fromisoformat(values[_SCHEDULE].removeprefix(_ONCE))
        is_far = due - stored_at > LONGEST_DELAY
    except (ValueError, TypeError, OverflowError):
        return f"its time is {values[_SCHEDULE][:80]!r}"
    return f"it is due in more than {LONGEST_DELAY.days} days" if is_far else ""
