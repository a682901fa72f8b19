"""Failures as groups of the same kind, and the jobs that died of them."""

from __future__ import annotations

from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery

from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    Cursor,
    Limit,
    Listing,
    Routes,
    read,
    whole,
)
from penstock.console.api.jobs import JobItem, job_page
from penstock.console.core import tables
from penstock.console.core.job_query import JobQuery
from penstock.console.parts import Console
from penstock.console.read_models import job_detail
from penstock.console.read_models.failures import (
    DeathsOfHour,
    Failure,
    deaths_by_hour,
    failure,
    newest_failures,
)
from penstock.console.read_models.job_detail import JobAnswer
from penstock.console.read_models.store import Snapshot
from penstock.console.web.access import ChangesWith


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/failures", source=ChangesWith.LOG)
    async def failures(
        limit: Limit = DEFAULT_LIMIT, cursor: Cursor = "", silenced: FromQuery[bool] = False
    ) -> Listing[Failure]:
        """Kinds of failures that jobs died of, the latest first; not those of muted functions.

        With `silenced` these alone.
        """
        items, after = await newest_failures(console, limit, cursor, silenced=silenced)
        return Listing(items=items, standing=console.standing, next=after)

    async def failure_or_404(fingerprint: str) -> Failure:
        def query(rows: Snapshot) -> Failure | None:
            row = rows.row(tables.FAILURES, fingerprint)
            return failure(rows, row) if row else None

        group = await console.read(query)
        if group is None:
            raise NotFoundException(f"no job died of {fingerprint!r} within the last 14 days")
        return group

    @read("/failures/{fingerprint:str}", source=ChangesWith.LOG)
    async def one_failure(fingerprint: FromPath[str]) -> Failure:
        """One kind of failure; its jobs are at `/dead?fingerprint=…`."""
        return await failure_or_404(fingerprint)

    @read("/failures/{fingerprint:str}/series", source=ChangesWith.LOG)
    async def failure_series(fingerprint: FromPath[str]) -> Listing[DeathsOfHour]:
        """When the jobs that are dead of it died, by hour."""
        await failure_or_404(fingerprint)
        return whole(console, await console.read(lambda rows: deaths_by_hour(rows, fingerprint)))

    @read("/dead", source=ChangesWith.LOG)
    async def dead(
        queue: FromQuery[str] = "",
        function: FromQuery[str] = "",
        fingerprint: FromQuery[str] = "",
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = "",
    ) -> Listing[JobItem]:
        """Jobs that failed for good, those that were dispatched last first."""
        query = JobQuery(state="dead", queue=queue, function=function, failure=fingerprint)
        return await job_page(console, query, limit, cursor)

    @read("/dead/{job_id:str}")
    async def dead_job(job_id: FromPath[str]) -> JobAnswer:
        """One job that failed for good, from its own events; without its arguments."""
        answer = await job_detail.read_job(console, job_id)
        if answer is None or answer.job.state != "dead":
            raise NotFoundException(f"job {job_id!r} is not dead; see /jobs/{job_id}")
        return answer

    return failures, one_failure, failure_series, dead, dead_job
