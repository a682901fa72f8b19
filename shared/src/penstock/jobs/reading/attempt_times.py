"""How long the last attempt of a job waited for a worker, and how long it ran. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from penstock.jobs.lifecycle import JobRecord, State


class AttemptTimes(NamedTuple):
    """Of the last attempt; None what is not known.

    Attributes:
        waited_seconds: from when it could start, since it was dispatched or due, until it did.
        ran_seconds: None while it runs, too.
        running_since: while it runs.
    """

    waited_seconds: float | None = None
    ran_seconds: float | None = None
    running_since: datetime | None = None


def attempt_times(job: JobRecord) -> AttemptTimes:
    """Those of a job; none before its first attempt, and of workflows, which have advances."""
    if job.started_at is None or job.is_workflow:
        return AttemptTimes()
    is_running = job.state is State.RUNNING
    waited = (job.started_at - job.available_at).total_seconds()
    return AttemptTimes(
        waited_seconds=waited if waited >= 0 else None,  # else a further attempt is due
        ran_seconds=None if is_running else job.run_seconds,
        running_since=job.started_at if is_running else None,
    )
