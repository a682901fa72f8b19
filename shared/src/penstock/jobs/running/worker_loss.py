"""What becomes of a job whose worker was lost: retried at once, retried later, or dead. Pure.

The executor of the worker's host records it, since it knows how the process ended; where no
executor is left, the worker that gets the message again once the claim has lapsed does.

A worker with several slots takes many jobs along, of which one may be to blame. None of them is
charged with a loss that it shared. After the first they run on as before: most likely none is to
blame. After the second in a row they are suspects: a worker runs half as many of them beside each
other, then a quarter, until each is the only one. Jobs that are no suspects may run beside them:
a loss is taken to be a suspect's doing where there is one, and counts towards the limit of a job
that was the only one.
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

MOST_SHARED_LOSSES = 12
"""A job that loses so many workers in a row together with other suspects is dead: from a company of
1,024 it takes eleven losses to be the only one."""
_SHARED_LOSSES_OF_A_SUSPECT = 2
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


def is_last(record: JobRecord, max_lost_workers: int, together: int) -> bool:
    """Whether the job is dead after this loss.

    Args:
        max_lost_workers: for jobs whose author set no limit.
        together: how many jobs may be to blame, this one included: see :func:`to_blame`.
    """
    most = limit(record, max_lost_workers)
    if together > 1 and most > 1:  # with a limit of one it may be harmful to run it again at all
        return record.lost_together + 1 >= MOST_SHARED_LOSSES
    return record.lost_workers + 1 >= most


def most_beside(record: JobRecord) -> int:
    """How many suspects may run in the worker that runs this job next, itself included.

    Returns:
        0: it is no suspect, and any number of them may run beside it.
    """
    if record.lost_beside > 1 and record.lost_together < _SHARED_LOSSES_OF_A_SUSPECT:
        return 0
    return max(record.lost_beside // 2, 1) if record.lost_beside else 0


def to_blame(is_suspect: bool, ran: int, suspects: int) -> int:
    """How many jobs may be to blame for the loss of a worker, as it is recorded of one of them.

    Args:
        is_suspect: the job was one before.
        ran: how many jobs the worker ran.
        suspects: how many of them were suspects before.
    """
    return suspects if is_suspect else ran


def delay_seconds(losses: int, draw: float | None = None) -> float:
    """How long a job waits after its worker was lost for the ``losses``-th time in a row.

    Args:
        draw: uniform in [0, 1); None draws one.
    """
    return BACKOFF.delay_seconds(losses - 1, draw) if losses > 1 else 0.0


def recovered(
    record: JobRecord,
    reason: str,
    *,
    source: str,
    now: datetime,
    delayed: bool,
    together: int = 1,
) -> JobRecovered:
    """The event after which a job is retried.

    Args:
        reason: which worker was lost, and how it ended.
        now: by the broker's clock.
        delayed: it waits for :func:`delay_seconds`; else it is retried at once.
        together: how many jobs may be to blame, this one included. A job that shared the loss is
            not delayed: if it is to blame, it delays few others.
    """
    is_delayed = delayed and together <= 1
    seconds = delay_seconds(record.lost_workers + 1) if is_delayed else 0.0
    return JobRecovered(
        job_id=record.id,
        correlation_id=record.id,
        source=source,
        at=now,
        reason=reason[:_REASON_LIMIT],
        due_at=now + timedelta(seconds=seconds) if seconds else None,
        together=together,
    )


def poisoned(
    record: JobRecord, reason: str, *, source: str, now: datetime, together: int = 1
) -> JobDead:
    """The event that ends a job which has lost as many workers as it may.

    Args:
        together: how many jobs may be to blame, this one included.
    """
    shared = record.lost_together + (together > 1)
    alone = record.lost_workers + (together <= 1)
    times = _in_a_row(alone or shared)
    if shared:
        times += " as the only suspect" if alone else " together with other jobs"
    if shared and alone:
        times += f" (and {'once' if shared == 1 else f'{shared} times'} together with other jobs)"
    last = "; the last time" if alone + shared > 1 else ""
    message = f"lost its worker{times}{last}: {reason[:_REASON_LIMIT]}"
    error = JobError(kind="poison", message=message)
    if record.at_most_once:
        error = interrupted_once(reason)
    return JobDead(
        job_id=record.id,
        correlation_id=record.id,
        source=source,
        at=now,
        queue=record.queue,
        function=record.function,
        error=error,
        attempt=record.attempt,
    )


def _in_a_row(losses: int) -> str:
    return f" {losses} times in a row" if losses > 1 else ""


def interrupted_once(reason: str) -> JobError:
    """The error of a job that runs at most once, and that did not come to its end."""
    return JobError(
        kind="at-most-once",
        message=f"{reason[:_REASON_LIMIT]}; it was started, runs at most once, and may have done "
        "its work or a part of it: look before you retry it",
    )
