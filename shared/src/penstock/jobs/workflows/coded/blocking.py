"""Workflows that no code at hand can go on with: when they are offered again. Pure."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from penstock.events.workflow import WorkflowBlocked
from penstock.jobs.lifecycle import JobRecord

LEAST_SECONDS, MOST_SECONDS = 5.0, 300.0
_MAX_REASON_LENGTH = 4_000


def blocked(record: JobRecord, reason: str, *, source: str, now: datetime) -> WorkflowBlocked:
    """The event that a workflow is blocked.

    It is offered again after as long as it has been blocked, 5 s at least and 5 minutes at most: in
    a rolling deployment other workers may have its code, later only another deployment brings it.

    Args:
        record: the workflow.
        reason: what was recorded and what the code calls instead, or which code is missing.
        source: what the event names as its origin.
        now: by the broker's clock.
    """
    since = (record.workflow.blocked_since if record.workflow else None) or now
    longest = min(max((now - since).total_seconds(), LEAST_SECONDS), MOST_SECONDS)
    pause = longest * (1 + random.random()) / 2  # noqa: S311 - so that they do not come back together
    return WorkflowBlocked(
        job_id=record.id,
        source=source,
        queue=record.queue,
        function=record.function,
        reason=reason[:_MAX_REASON_LENGTH],
        due_at=now + timedelta(seconds=pause),
        since=since,
    )
