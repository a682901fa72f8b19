"""What becomes of a job whose worker was lost: retried at once, retried later, or dead. Pure.

The executor of the worker's host records it, since it knows how the process ended; where no
executor is left, the worker that gets the message again once the claim has lapsed does.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from penstock.events.job import JobDead, JobError, JobRecovered
from penstock.jobs.lifecycle import JobRecord
from penstock.jobs.retry import Backoff

BACKOFF = Backoff(first_seconds=1.0, factor=3.0, max_seconds=60.0, jitter=0.5)
"""Delay after the second loss in a row, and after each further one.

The first loss is most likely not the job's fault (a host under memory pressure, an operator's
``kill -9``): the job is retried at once. A job whose worker is lost again is not delivered ahead of
all others any more, so that it does not delay them.
"""

_REASON_LIMIT = 1_000


def limit(record: JobRecord, max_lost_workers: int) -> int:
    """How many workers in a row the job may lose before it is dead.

    Args:
        record: of the job.
        max_lost_workers: for jobs whose author set no limit.
    """
    return record.max_lost or max_lost_workers


def own_limit(max_lost: int, tries: int) -> int:
    """The value of `JobStarted.max_lost`; 0 where ``jobs.max_lost_workers`` decides.

    Args:
        max_lost: of the job type; 0 where its author named none.
        tries: of the call, not of the pool; 0 likewise. A job that may be tried once may be harmful
            when it runs twice, so it may lose one worker.
    """
    return max_lost or (1 if tries == 1 else 0)


def delay_seconds(losses: int, draw: float | None = None) -> float:
    """How long a job waits after its worker was lost for the ``losses``-th time in a row.

    Args:
        draw: uniform in [0, 1); None draws one.
    """
    return BACKOFF.delay_seconds(losses - 1, draw) if losses > 1 else 0.0


def recovered(
    record: JobRecord, reason: str, *, source: str, now: datetime, delayed: bool
) -> JobRecovered:
    """The event after which a job is retried.

    Args:
        reason: which worker was lost, and how it ended.
        now: by the broker's clock.
        delayed: it waits for :func:`delay_seconds`; else it is retried at once.
    """
    seconds = delay_seconds(record.lost_workers + 1) if delayed else 0.0
    return JobRecovered(
        job_id=record.id,
        correlation_id=record.id,
        source=source,
        at=now,
        reason=reason[:_REASON_LIMIT],
        due_at=now + timedelta(seconds=seconds) if seconds else None,
    )


def poisoned(record: JobRecord, reason: str, *, source: str, now: datetime) -> JobDead:
    """The event that ends a job which has lost as many workers as it may."""
    lost = record.lost_workers + 1
    times = "its worker" if lost == 1 else f"its worker {lost} times in a row; the last time"
    message = f"lost {times}: {reason[:_REASON_LIMIT]}"
    return JobDead(
        job_id=record.id,
        correlation_id=record.id,
        source=source,
        at=now,
        queue=record.queue,
        function=record.function,
        error=JobError(kind="poison", message=message),
    )
