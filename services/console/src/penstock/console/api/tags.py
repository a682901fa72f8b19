"""Tags of jobs."""

from __future__ import annotations

from litestar.params import FromPath

from penstock.console.api.endpoint import DEFAULT_LIMIT, Cursor, Limit, Listing, Routes, read, whole
from penstock.console.api.jobs import JobItem, job_page
from penstock.console.core.job_query import JobQuery
from penstock.console.parts import Console
from penstock.console.read_models.summaries import TagItem, tag_items
from penstock.console.web.access import ChangesWith


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/tags", source=ChangesWith.LOG)
    async def tags() -> Listing[TagItem]:
        """Tags of the newest 20,000 jobs, the most frequent first."""
        return whole(console, await console.read_once(tag_items))

    @read("/tags/{tag:str}", source=ChangesWith.LOG)
    async def tag_jobs(
        tag: FromPath[str], limit: Limit = DEFAULT_LIMIT, cursor: Cursor = ""
    ) -> Listing[JobItem]:
        """Jobs with a tag, the newest first."""
        return await job_page(console, JobQuery(tag=tag), limit, cursor)

    return tags, tag_jobs
