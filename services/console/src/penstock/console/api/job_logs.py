"""What a job wrote: lines of its loggers, and what it printed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import msgspec
from litestar.params import FromPath, QueryParameter

from penstock.console.api.access.caller import AnyRequest
from penstock.console.api.endpoint import Cursor, Limit, Routes, read
from penstock.console.core import cursors
from penstock.console.parts import Console
from penstock.console.read_models import job_lines
from penstock.console.read_models.job_lines import BEGINNING, JobLine
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.acting import check_limits
from penstock.console.web.scopes import Scope

DEFAULT_LINES = 200
AttemptNumber = Annotated[
    int, QueryParameter(ge=0, le=2**31, description="Only lines of this attempt; 0 for all.")
]
FromStart = Annotated[
    bool, QueryParameter(description="The oldest lines that are stored, not the newest.")
]


class LogPage(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a job, newest last.

    Attributes:
        items: the lines.
        left_out: older lines before the first one, where the newest were asked for.
        next: cursor of the lines after these, also of those that are still to come.
        complete: False where more lines are stored: ``next`` goes on there.
    """

    items: list[JobLine]
    left_out: int
    next: str
    complete: bool


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/jobs/{job_id:str}/logs", Scope.PAYLOAD, action="logs.view", checks_limits=True)
    async def logs(
        request: AnyRequest,
        job_id: FromPath[str],
        attempt: AttemptNumber = 0,
        limit: Limit = DEFAULT_LINES,
        from_start: FromStart = False,
        cursor: Cursor = "",
    ) -> LogPage:
        """The newest lines that a job wrote; with `cursor` or `from_start` those from there on."""
        record = (await console.client.job(job_id)).record
        check_limits(request.scope["state"][PRINCIPAL], queue=record.queue)
        listing, key = f"logs {job_id} {attempt}", console.store.cursor_key
        wanted = (console.client, job_id, attempt, limit)
        reading = partial(job_lines.newest, *wanted)
        if cursor or from_start:
            sequence, passed = cursors.decode(cursor, listing, key) if cursor else BEGINNING
            reading = partial(job_lines.following, *wanted, (int(sequence), int(passed)))
        answer = await console.readable.read(console.subjects.logs_stream, reading)
        return LogPage(
            items=answer.lines,
            left_out=answer.left_out,
            next=cursors.encode(answer.until, listing, key),
            complete=answer.is_complete,
        )

    return (logs,)
