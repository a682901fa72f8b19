"""The list of jobs by any filter, and one job with its history."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from litestar import Response
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.access.roles import ROLES
from penstock.console.api.argument_search import check_search
from penstock.console.api.endpoint import DEFAULT_LIMIT, AsOfText, Listing
from penstock.console.api.jobs import JobItem, job_page
from penstock.console.core import tables
from penstock.console.core.job_query import BadFilter, JobQuery, read
from penstock.console.pages import job_columns, sections
from penstock.console.pages.acting.bulk import offer
from penstock.console.pages.acting.buttons import Acts, AnyRequest, acts, done, refusal, viewer
from penstock.console.pages.job_columns import UnknownColumn
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.time_travel import visit
from penstock.console.parts import Console
from penstock.console.read_models import job_detail
from penstock.console.read_models.failures import Failure, failure
from penstock.console.read_models.job_detail import JobAnswer
from penstock.console.read_models.state_counts import COUNTED_MOST, state_counts
from penstock.console.read_models.store import Snapshot
from penstock.console.web.scopes import Scope
from penstock.events.envelope import utc_now
from penstock.jobs import derived_ids
from penstock.views import wording

TABS = ("waiting", "running", "scheduled", "retrying", "suspended", "dead", "completed")
_PAYLOAD_ROLES = [role for role, scopes in ROLES.items() if Scope.PAYLOAD in scopes]
_MOST_DRAWN = 40
"""Attempts that are drawn, the last ones."""


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @page_at("/jobs")
    async def jobs(
        request: AnyRequest,
        q: FromQuery[str] = "",
        cursor: FromQuery[str] = "",
        columns: FromQuery[list[str] | None] = None,
    ) -> Response[str]:
        problem, column_problem, chosen = "", "", job_columns.USUAL
        try:
            chosen = job_columns.read(columns or ())
        except UnknownColumn as error:
            column_problem = f"The usual columns are shown: {error}."
        try:
            query = read(q)
            check_search(console, viewer(request), query)
            listing = await job_page(console, query, DEFAULT_LIMIT, cursor)
        except (BadFilter, PermissionDeniedException) as error:
            query, problem = JobQuery(), getattr(error, "detail", str(error))
            listing = Listing[JobItem](items=[], standing=console.standing)
        muted = tuple(console.alerts.book.muted)
        totals = await console.read(lambda rows: state_counts(rows, query, muted))
        return pages.page(
            "jobs.html",
            "Jobs",
            "Jobs",
            sections=sections.JOBS,
            listing=listing,
            query=query,
            words=q,
            cursor=cursor,
            problem=problem,
            offer=offer(console, request, query),
            tabs=[(state, _with_state(query, state), totals[state]) for state in TABS],
            counted_most=COUNTED_MOST,
            all_states=_with_state(query, ""),
            muted=muted,
            columns=chosen,
            all_columns=job_columns.COLUMNS,
            usual=job_columns.USUAL,
            column_problem=column_problem,
            address=lambda words, cursor="": job_columns.address(words, chosen, cursor),
            views_refusal=refusal(console, viewer(request), Scope.READ),
            acted=done(request),
        )

    @page_at("/jobs/{job_id:str}", answers_as_of=True)
    async def job(
        request: AnyRequest,
        job_id: FromPath[str],
        cursor: FromQuery[str] = "",
        as_of: AsOfText = "",
    ) -> Response[str]:
        moment = console.history.moment(as_of)
        whole = await job_detail.read_whole(console, job_id, cursor, moment)
        if whole is None:
            raise NotFoundException(f"there is no job {job_id!r}, or not any more")
        answer, events = whole
        group = None if moment else await console.read(lambda rows: _failure_of(rows, answer))
        title = f"{answer.job.function or 'Job'} {answer.job.state}"
        line = timeline(answer, moment or utc_now())
        return pages.page(
            "job.html",
            "Jobs",
            title,
            visit=await visit(console, request, answer.standing.past),
            answer=answer,
            events=events,
            cursor="" if moment else cursor,
            line=line,
            failure=group,
            part_of=(derived_ids.step(job_id) or ("", 0))[0],
            may_see_payload=Scope.PAYLOAD in viewer(request).scopes,
            payload_roles=_PAYLOAD_ROLES,
            acts=Acts() if moment else acts(console, request, _possible(answer), job_id),
            acted=done(request),
        )

    return jobs, job


def _failure_of(rows: Snapshot, answer: JobAnswer) -> Failure | None:
    """The group of the failure that a job died of; None where it did not."""
    row = rows.row(tables.JOBS, answer.job.id) if answer.job.state == "dead" else None
    group = rows.row(tables.FAILURES, row.fingerprint) if row and row.fingerprint else None
    return failure(rows, group) if group else None


def _possible(answer: JobAnswer) -> list[str]:
    """Acts on a job in its present state. A coded workflow has its own page."""
    tagging = ["job.tag", *["job.untag"] * bool(answer.tags)]
    if answer.kind == "workflow":
        return tagging
    ended = {"dead": ["job.retry", "dead.delete"], "cancelled": ["job.retry"], "completed": []}
    living = ["job.cancel"] + ["job.recover"] * (answer.job.state == "running")
    return ended.get(answer.job.state, living) + tagging


class Stretch(NamedTuple):
    """A part of a job's life in the drawing of it: ``x`` and ``width`` of 1,000.

    Attributes:
        kind: ``waited``, or how the attempt ended: ``completed``, ``failed`` or ``running``.
    """

    kind: str
    x: float
    width: float
    text: str


def timeline(answer: JobAnswer, now: datetime) -> list[Stretch]:
    """What a job spent its time with, from its dispatch to its end or until now."""
    begin = answer.job.dispatched_at
    last = answer.attempts[-1].ended_at if answer.attempts else None
    end = answer.job.finished_at or last or now
    whole = max((end - begin).total_seconds(), 1e-3)

    def stretch(kind: str, start: datetime, stop: datetime, text: str) -> Stretch:
        x = 1000 * max(0.0, (start - begin).total_seconds()) / whole
        width = 1000 * max(0.0, (stop - start).total_seconds()) / whole
        return Stretch(kind, round(x, 1), round(max(width, 2.0), 1), text)

    drawn: list[Stretch] = []
    free_since = begin
    for attempt in answer.attempts[-_MOST_DRAWN:]:
        waited = wording.seconds((attempt.started_at - free_since).total_seconds())
        drawn.append(stretch("waited", free_since, attempt.started_at, f"waited {waited}"))
        free_since = attempt.ended_at or end
        ran = wording.seconds((free_since - attempt.started_at).total_seconds())
        kind = "completed" if attempt.end == "JobCompleted" else "failed"
        words = f"try {attempt.number} on {attempt.host}: {ran}"
        drawn.append(
            stretch(kind if attempt.ended_at else "running", attempt.started_at, free_since, words)
        )
    if answer.attempts and end > free_since:
        drawn.append(stretch("waited", free_since, end, "waited for its next try"))
    return drawn


def _with_state(query: JobQuery, state: str) -> str:
    fields = {name: getattr(query, name) for name in query.__struct_fields__}
    return JobQuery(**(fields | {"state": state})).words
