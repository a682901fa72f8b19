"""One row for each kind of failure that jobs died of: the group of a fingerprint. Pure."""

from __future__ import annotations

import msgspec

from penstock.console.core.log_entry import LogEntry, micros
from penstock.events.job import JobDead
from penstock.jobs.dead_letters.fingerprint import fingerprint, what_failed


class FailureRow(msgspec.Struct, frozen=True):
    """Failures that look alike; times are microseconds since 1970.

    Attributes:
        kind: type of the error.
        message: of the error, without what varies.
        deaths: jobs that died of it, since the first that is known.
        functions: at most ten, the latest last.
        queues: likewise.
        last_job: id of the job that died last.
    """

    fingerprint: str
    kind: str
    message: str
    deaths: int
    first_us: int
    last_us: int
    functions: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    last_job: str = ""


_MOST_NAMES = 10


def key_of(entry: LogEntry) -> str | None:
    """The fingerprint of what a job died of."""
    return fingerprint(entry.event.error) if isinstance(entry.event, JobDead) else None


def advance(row: FailureRow | None, entry: LogEntry) -> FailureRow | None:
    """The row after one more death."""
    event = entry.event
    if not isinstance(event, JobDead):
        return row
    at_us = micros(event.at)
    return FailureRow(
        fingerprint=row.fingerprint if row else fingerprint(event.error),
        kind=event.error.kind,
        message=row.message if row else what_failed(event.error),
        deaths=row.deaths + 1 if row else 1,
        first_us=min(row.first_us, at_us) if row else at_us,
        last_us=max(row.last_us, at_us) if row else at_us,
        functions=_with(row.functions if row else (), event.function),
        queues=_with(row.queues if row else (), event.queue),
        last_job=event.job_id,
    )


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    if not name or name in names:
        return names
    return (*names, name)[-_MOST_NAMES:]
