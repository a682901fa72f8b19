"""What jobs died of: groups of the same failure, and the jobs of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.api.endpoint import DEFAULT_LIMIT
from penstock.console.api.jobs import job_page
from penstock.console.api.muted import MutedItem, muted_item
from penstock.console.core import tables
from penstock.console.core.job_query import JobQuery
from penstock.console.pages.acting.bulk import offer
from penstock.console.pages.acting.buttons import Acts, AnyRequest, acts, done
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.parts import Console
from penstock.console.read_models import job_detail
from penstock.console.read_models.failures import deaths_by_hour, failure, newest_failures

BARS = 48
"""Hours of the small chart of a failure."""


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @page_at("/failures")
    async def failures(request: AnyRequest, cursor: FromQuery[str] = "") -> Response[str]:
        muted = [*console.alerts.book.muted]
        groups, after = await newest_failures(console, DEFAULT_LIMIT, cursor, silenced=False)
        return pages.page(
            "failures.html",
            "Failures",
            "Failures",
            groups=groups,
            cursor=cursor,
            after=after,
            muted=muted,
            acted=done(request),
        )

    @page_at("/failures/{fingerprint:str}")
    async def one_failure(request: AnyRequest, fingerprint: FromPath[str]) -> Response[str]:
        row = await console.read(lambda rows: rows.row(tables.FAILURES, fingerprint))
        if row is None:
            raise NotFoundException(f"no job died of the failure {fingerprint!r} within 14 days")
        group, hours = await console.read(
            lambda rows: (failure(rows, row), deaths_by_hour(rows, fingerprint))
        )
        query = JobQuery(state="dead", failure=fingerprint)
        return pages.page(
            "failure.html",
            "Failures",
            f"{group.kind} in {group.functions[-1] if group.functions else 'jobs'}",
            group=group,
            hours=hours[-BARS:],
            jobs=await job_page(console, query, DEFAULT_LIMIT, ""),
            words=query.words,
            offer=offer(console, request, query),
            muting=[_muting(console, request, name) for name in group.functions],
            example=await job_detail.read_job(console, group.last_job),
        )

    return failures, one_failure


class Muting(NamedTuple):
    """What can be done about one function of a failure; ``mute`` is None where it is listed."""

    function: str
    mute: MutedItem | None
    acts: Acts


def _muting(console: Console, request: AnyRequest, function: str) -> Muting:
    mute = console.alerts.book.muted.get(function)
    verb = "function.unmute" if mute else "function.mute"
    item = muted_item(mute) if mute else None
    return Muting(function, item, acts(console, request, [verb], function))
