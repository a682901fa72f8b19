"""Batches: jobs that are counted together."""

from __future__ import annotations

from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    Cursor,
    InState,
    Limit,
    Listing,
    Routes,
    read,
)
from penstock.console.api.jobs import JobItem, job_page
from penstock.console.core import tables
from penstock.console.core.job_query import JobQuery
from penstock.console.parts import Console
from penstock.console.read_models import keyset
from penstock.console.read_models.workflow_list import BatchItem, batch_item
from penstock.console.web.access import ChangesWith


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/batches", source=ChangesWith.LOG)
    async def batches(
        in_state: InState = "", limit: Limit = DEFAULT_LIMIT, cursor: Cursor = ""
    ) -> Listing[BatchItem]:
        """Batches, the newest first."""
        rows, after = await keyset.page(
            console, tables.BATCHES, "created_us", {"state": in_state}, limit, cursor
        )
        items = [batch_item(row) for row in rows]
        return Listing(items=items, standing=console.standing, next=after)

    @read("/batches/{batch_id:str}", source=ChangesWith.LOG)
    async def batch(batch_id: FromPath[str]) -> BatchItem:
        """One batch."""
        row = await console.read(lambda rows: rows.row(tables.BATCHES, batch_id))
        if row is None:
            raise NotFoundException(f"there is no batch {batch_id!r}, or not any more")
        return batch_item(row)

    @read("/batches/{batch_id:str}/jobs", source=ChangesWith.LOG)
    async def batch_jobs(
        batch_id: FromPath[str],
        in_state: InState = "",
        limit: Limit = DEFAULT_LIMIT,
        cursor: Cursor = "",
    ) -> Listing[JobItem]:
        """Jobs of a batch, the newest first."""
        return await job_page(console, JobQuery(batch=batch_id, state=in_state), limit, cursor)

    return batches, batch, batch_jobs
