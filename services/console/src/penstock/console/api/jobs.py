"""Jobs: lists by any filter, and one job from its own events."""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, FromQuery, QueryParameter

from penstock.console.api.access.caller import AnyRequest
from penstock.console.api.argument_search import check_search
from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    AsOfText,
    Cursor,
    Limit,
    Listing,
    Routes,
    read,
    whole,
)
from penstock.console.core import cursors
from penstock.console.core.job_query import JobQuery
from penstock.console.core.job_query import read as read_words
from penstock.console.core.job_rows import JobRow
from penstock.console.core.times import instant_or_none
from penstock.console.parts import Console
from penstock.console.past.moments import BadMoment
from penstock.console.read_models import job_detail, job_list
from penstock.console.read_models.job_detail import Attempt, JobAnswer, JobEvents
from penstock.console.read_models.overview import Totals, job_totals
from penstock.console.web.access import PRINCIPAL, ChangesWith
from penstock.console.web.acting import check_limits
from penstock.console.web.scopes import Scope
from penstock.jobs.payloads import redaction


class JobItem(msgspec.Struct, frozen=True):
    """A job in a list; ``deferred`` says why it waits although it did not fail.

    Its fields are those of a row, by which it is made: a page has up to 500.
    """

    id: str
    state: str
    function: str
    queue: str
    priority: str
    attempt: int
    tries: int
    dispatched_at: datetime
    available_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    run_seconds: float | None
    pickup_seconds: float | None
    host: str
    worker: str
    error_kind: str
    error_message: str
    tags: tuple[str, ...]
    batch: str
    kind: str
    deferred: str
    done: int | None
    total: int | None
    is_paused: bool


class PayloadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a job was called with, and what it returned; None where it has not, or is encrypted."""

    arguments: Any
    result: Any


_NAMES = JobItem.__struct_fields__
_TIMES = [place for place, name in enumerate(_NAMES) if name.endswith("_at")]
_stored = attrgetter(
    *("state.value" if name == "state" else name.replace("_at", "_us") for name in _NAMES)
)


def job_item(row: JobRow) -> JobItem:
    """A row as it is sent."""
    values = list(_stored(row))
    for place in _TIMES:
        values[place] = instant_or_none(values[place])
    return JobItem(*values)


async def job_page(console: Console, query: JobQuery, limit: int, cursor: str) -> Listing[JobItem]:
    """A page of jobs, newest first."""
    listing, key = f"jobs {query.words}", console.store.cursor_key
    after: job_list.Position | None = None
    if cursor:
        dispatched_us, job_id = cursors.decode(cursor, listing, key)
        after = (int(dispatched_us), str(job_id))
    muted = tuple(console.alerts.book.muted)
    page, standing = await console.read_standing(
        lambda rows: job_list.page(rows, query, limit, after, muted)
    )
    return Listing(
        items=[job_item(row) for row in page.jobs],
        standing=standing,
        next=cursors.encode(page.next_from, listing, key) if page.next_from else "",
        complete=page.is_complete,
        searched_until=instant_or_none(page.searched_until_us),
    )


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/jobs", source=ChangesWith.LOG)
    async def jobs(
        request: AnyRequest,
        q: FromQuery[str] = "",
        in_state: Annotated[str, QueryParameter(name="state")] = "",
        queue: FromQuery[str] = "",
        function: FromQuery[str] = "",
        host: FromQuery[str] = "",
        tag: FromQuery[str] = "",
        batch: FromQuery[str] = "",
        error: FromQuery[str] = "",
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = "",
    ) -> Listing[JobItem]:
        """Jobs, newest first; `q` is a filter as text, the other parameters take precedence.

        `args.NAME:VALUE` in it needs the scope `payload`, and `console.searchable_arguments`.
        """
        named = {
            "state": in_state,
            "queue": queue,
            "function": function,
            "host": host,
            "tag": tag,
            "batch": batch,
            "error": error,
        }
        fields = msgspec.structs.asdict(read_words(q)) | {k: v for k, v in named.items() if v}
        query = JobQuery(**fields)
        check_search(console, request.scope["state"][PRINCIPAL], query)
        return await job_page(console, query, limit, cursor)

    @read("/jobs/stats", source=ChangesWith.LOG)
    async def stats() -> Totals:
        """How many jobs are in each state."""
        return await console.read(job_totals)

    @read("/jobs/{job_id:str}", answers_as_of=True)
    async def job(job_id: FromPath[str], as_of: AsOfText = "") -> JobAnswer:
        """One job, from its own events; without arguments and result."""
        answer = await job_detail.read_job(console, job_id, console.history.moment(as_of))
        if answer is None:
            raise NotFoundException(f"there is no job {job_id!r}, or not any more")
        return answer

    @read("/jobs/{job_id:str}/events", answers_as_of=True)
    async def events(job_id: FromPath[str], cursor: Cursor = "", as_of: AsOfText = "") -> JobEvents:
        """What happened to a job, oldest first: its first and last 200 events.

        `next` leads to those between them, 400 at a time; not as of a past moment.
        """
        moment = console.history.moment(as_of)
        if cursor and moment:
            raise BadMoment("a cursor leads through the events of now: leave it or as_of out")
        answer = await job_detail.read_events(console, job_id, cursor, moment)
        if answer is None:
            raise NotFoundException(f"there is no job {job_id!r}, or not any more")
        return answer

    @read("/jobs/{job_id:str}/timeline")
    async def timeline(job_id: FromPath[str]) -> Listing[Attempt]:
        """The starts of a job, and how each ended."""
        answer = await job_detail.read_job(console, job_id)
        if answer is None:
            raise NotFoundException(f"there is no job {job_id!r}, or not any more")
        return whole(console, answer.attempts)

    @read("/jobs/{job_id:str}/payload", Scope.PAYLOAD, action="payload.view", checks_limits=True)
    async def job_payload(request: AnyRequest, job_id: FromPath[str]) -> PayloadAnswer:
        """Arguments and result of a job, with what the settings mask left out."""
        record = (await console.client.job(job_id)).record
        check_limits(request.scope["state"][PRINCIPAL], queue=record.queue)
        return PayloadAnswer(
            arguments=redaction.arguments(record.payload),
            result=redaction.result(record.result, record.payload),
        )

    return jobs, stats, job, events, timeline, job_payload
