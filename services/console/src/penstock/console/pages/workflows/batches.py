"""Batches, and one with its jobs."""

from __future__ import annotations

from collections.abc import Sequence

from litestar import Response
from litestar.exceptions import NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.api.endpoint import DEFAULT_LIMIT
from penstock.console.api.jobs import job_page
from penstock.console.core.job_query import JobQuery
from penstock.console.pages.acting.buttons import AnyRequest, acts, done
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import WORKFLOWS as SECTIONS
from penstock.console.pages.workflows.runs import ChosenState
from penstock.console.parts import Console
from penstock.console.read_models import workflow_list as model
from penstock.jobs.batches.batch_record import BatchState

_AREA = "Workflows"


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @page_at("/batches")
    async def batches(chosen: ChosenState = "") -> Response[str]:
        wanted = chosen if chosen in tuple(BatchState) else ""
        items = await console.read(lambda rows: model.newest_batches(rows, wanted, DEFAULT_LIMIT))
        return pages.page(
            "batches.html",
            _AREA,
            "Batches",
            sections=SECTIONS,
            items=items,
            chosen=wanted,
            states=tuple(map(str, BatchState)),
        )

    @page_at("/batches/{batch_id:str}")
    async def batch(request: AnyRequest, batch_id: FromPath[str]) -> Response[str]:
        item = await console.read(lambda rows: model.one_batch(rows, batch_id))
        if item is None:
            raise NotFoundException(f"there is no batch {batch_id!r}, or not any more")
        jobs = await job_page(console, JobQuery(batch=batch_id), DEFAULT_LIMIT, "")
        possible = [] if item.ended_at else ["batch.cancel"]
        return pages.page(
            "batch.html",
            _AREA,
            f"Batch {item.title or batch_id}",
            sections=SECTIONS,
            batch=item,
            jobs=jobs,
            acts=acts(
                console, request, possible + ["batch.retry-failed"] * bool(item.failed), batch_id
            ),
            acted=done(request),
        )

    return batches, batch
