"""Reading jobs, as a part of the client."""

from __future__ import annotations

import asyncio
import builtins
import dataclasses
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from msgspec.structs import replace

from penstock.bus.protocol import Bus, broker_time
from penstock.config.topology import PRIORITIES, in_lane
from penstock.events.subjects import Subjects
from penstock.jobs.errors import BadTime
from penstock.jobs.job_filter import JobFilter
from penstock.jobs.job_log import JobLog
from penstock.jobs.lifecycle import State
from penstock.jobs.payloads.encryption import KeyRing
from penstock.jobs.reading.handed_on import HandedOnReader
from penstock.jobs.reading.id_prefix import find_id
from penstock.jobs.reading.job_list import DEFAULT_LIMIT, JobList, JobQuery, newest_jobs
from penstock.jobs.reading.job_logs import AttemptLines, JobLogs

_MOST_ASKED = 100
"""Jobs of a list that are asked why they wait: one request to the broker each."""


class Jobs:
    """Lists of jobs, and what they wrote: ``client.jobs``.

    Args:
        log: the events of jobs.
        ring: keys that open encrypted results and lines.
        handed_on: looks why jobs that could start have not.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, log: JobLog, ring: KeyRing, handed_on: HandedOnReader
    ) -> None:
        self._bus, self._subjects, self._ring = bus, subjects, ring
        self._handed_on = handed_on
        self._logs = JobLogs(bus, subjects, log, ring)

    async def list(
        self,
        *,
        state: State | None = None,
        function: str = "",
        queue: str = "",
        tag: str = "",
        batch: str = "",
        worker: str | None = None,
        since: datetime | timedelta | None = None,
        until: datetime | timedelta | None = None,
        limit: int = DEFAULT_LIMIT,
    ) -> JobList:
        """Jobs that fit all that is given, those that changed last first.

        Args:
            state: as they are now.
            function: registered name.
            queue: with all its priorities.
            tag: one of its tags.
            batch: id of the batch that it is counted in.
            worker: that runs it or ran it last.
            since: changed at or after this time, or this long ago at most.
            until: changed last before this time, or longer ago than this.
            limit: jobs at most.

        Returns:
            The jobs; its ``cut_off`` is set where the event log was not read to its beginning.

        Raises:
            BadTime: a time without a zone.
            BusError
        """
        lanes = tuple(in_lane(queue, priority) for priority in PRIORITIES) if queue else ()
        wanted = JobQuery(
            matching=JobFilter(queues=lanes, function=function, tag=tag, batch=batch),
            state=state,
            worker=worker,
            since=_moment(since, self._bus),
            until=_moment(until, self._bus),
        )
        listed = await newest_jobs(self._bus, self._subjects, wanted, limit, self._ring)
        waiting = [view for view in listed if view.state is State.WAITING][:_MOST_ASKED]
        # the first one shows whether this key may look
        reasons = [await self._handed_on.read(view.record) for view in waiting[:1]]
        reasons += await asyncio.gather(
            *(self._handed_on.read(view.record) for view in waiting[1:])
        )
        by_id = {view.id: why for view, why in zip(waiting, reasons, strict=True) if why}
        jobs = (replace(view, handed_on=by_id.get(view.id)) for view in listed)
        return dataclasses.replace(listed, jobs=tuple(jobs)) if by_id else listed

    async def find_id(self, text: str) -> str:
        """The id of the one job whose id is ``text`` or begins with it; see :func:`find_id`."""
        return await find_id(self._bus, self._subjects, text)

    async def logs(self, job_id: str, attempt: int = 0) -> builtins.list[AttemptLines]:
        """What a job wrote, as far as it is stored; see :meth:`JobLogs.read`."""
        return await self._logs.read(job_id, attempt)

    def stored_logs(
        self, job_id: str, attempt: int = 0, start: int = 1
    ) -> AsyncIterator[AttemptLines]:
        """What a job wrote, from a message on; see :meth:`JobLogs.stored`."""
        return self._logs.stored(job_id, attempt, start)

    def follow_logs(self, job_id: str, attempt: int = 0) -> AsyncIterator[AttemptLines]:
        """What a job wrote and writes, until it has ended; see :meth:`JobLogs.follow`."""
        return self._logs.follow(job_id, attempt)


def _moment(time: datetime | timedelta | None, bus: Bus) -> datetime | None:
    if isinstance(time, timedelta):
        return broker_time(bus) - time
    if time is not None and time.tzinfo is None:
        raise BadTime(f"found the time {time.isoformat()} without a zone; give it one, such as UTC")
    return time
