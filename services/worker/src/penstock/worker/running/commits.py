"""Committing a job's output in its own history: an attempt that was deposed cannot.

Every start and every takeover of a job is an event of it. A commit is one too, stored by
compare-and-set behind the last event that the attempt knows of: once another attempt has begun, or
the job was taken away, there is an event in between, and the commit fails.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

import msgspec

from penstock.bus.protocol import Bus, BusError, BusUnavailable, WrongSequence
from penstock.events.job import JobCommitted
from penstock.jobs.errors import Cancelled, CommitRefused, UnreadableJob
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import JobRecord, State
from penstock.worker.claiming.claimed_job import ClaimedJob

log = logging.getLogger("penstock.worker")

_RETRY_SECONDS = 0.1

MAX_NAME_BYTES, MAX_LOCATION_BYTES = 512, 4_096
MAX_COMMITS_BYTES = 200_000
"""Beside a call of the largest size, 512,000 bytes or 683,000 in base64, in an event of 1 MiB."""


class Commits:
    """Called by the job's thread by way of the worker's loop."""

    def __init__(self, bus: Bus, joblog: JobLog) -> None:
        self._bus, self._joblog = bus, joblog

    async def find(self, job: ClaimedJob, name: str) -> str | None:
        """What was committed under this name, by whichever attempt. Raises Cancelled."""
        while True:
            try:
                record = await own_record(self._joblog, job)
            except BusError as error:
                await self._wait(job, error)
                continue
            return record.commits.get(name)

    async def commit(self, job: ClaimedJob, name: str, location: str) -> str:
        """Commits a location under a name, once.

        Returns:
            The one that stands: an earlier attempt's, where that had committed before it was lost.

        Raises:
            Cancelled: the job was cancelled, or is another worker's now.
            CommitRefused: it is too long, or the job has committed too much.
        """
        event = JobCommitted(
            job_id=job.id,
            correlation_id=job.id,
            source=self._joblog.source,
            output=name,
            location=location,
        )
        while True:
            if job.appending is not None and not job.appending.done():
                await asyncio.wait([job.appending])
            try:
                record = await own_record(self._joblog, job)
                if name in record.commits:  # also its own, whose answer was lost
                    return record.commits[name]
                check_size(record.commits, name, location)
                job.appending = asyncio.ensure_future(
                    self._bus.append(self._joblog.outgoing(event, record.sequence))
                )
                job.sequence = await job.appending
                return location
            except WrongSequence:  # progress, or another attempt: the record shows which
                continue
            except BusError as error:
                await self._wait(job, error)

    # No retry helper: without end while the attempt is this worker's, and each try reads anew
    # whether it still is.
    async def _wait(self, job: ClaimedJob, error: BusError) -> None:
        if not isinstance(error, BusUnavailable):
            raise error
        if job.lost:
            raise Cancelled from error
        await asyncio.sleep(_RETRY_SECONDS)


async def own_record(joblog: JobLog, job: ClaimedJob) -> JobRecord:
    """A job by its events, while it is this attempt's. Raises Cancelled, BusError."""
    try:
        record = await joblog.read_checked(job.id)
    except UnreadableJob as error:
        log.error("%s", error)
        raise Cancelled from error
    if record is None or record.state is not State.RUNNING or record.token != job.token:
        raise Cancelled
    if job.lost:
        raise Cancelled
    job.sequence = max(job.sequence, record.sequence)
    return record


def check_size(commits: Mapping[str, str], name: str, location: str) -> None:
    """Whether a job may commit a further location.

    Args:
        commits: what it has committed, by name.

    Raises:
        CommitRefused: it is too long, or all together are too much.
    """
    for what, text, most in (
        ("name", name, MAX_NAME_BYTES),
        ("location", location, MAX_LOCATION_BYTES),
    ):
        if (size := len(text.encode("utf-8", "replace"))) > most:
            raise CommitRefused(f"the {what} of a commit has {size} bytes, at most {most} are kept")
    size = len(msgspec.json.encode({**commits, name: location}))
    if size > MAX_COMMITS_BYTES:
        raise CommitRefused(
            f"the job has {len(commits)} commits; with {name!r} they take {size} bytes, at most "
            f"{MAX_COMMITS_BYTES} are kept. Commit one folder or one list of files instead of many"
        )
