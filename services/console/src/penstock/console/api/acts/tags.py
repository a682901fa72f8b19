"""Tags that jobs are given, or lose, after their dispatch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from litestar.params import FromPath

from penstock.console.api.acts.receipt import (
    ACCEPTED,
    ApiRequest,
    Receipt,
    client_of,
    receipt,
    target,
)
from penstock.console.api.endpoint import Routes
from penstock.console.parts import Console
from penstock.console.web.acting import act, check_limits
from penstock.console.web.scopes import Scope
from penstock.jobs.tagging import JobTags, Tags

_PATH = "/jobs/{job_id:str}/tags/{tag:path}"
Change = Callable[[JobTags, str, str], Awaitable[Tags]]


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    async def change(request: ApiRequest, job_id: str, tag: str, apply: Change) -> Receipt:
        target(request, "job", job_id, tag=tag[:200])
        principal = request.scope["state"]["principal"]
        if principal.is_limited:
            queue = (await console.client.job(job_id)).record.queue
            check_limits(principal, queue=queue)
        await apply(client_of(console, request).tags, job_id, tag)
        return await receipt(console, "job", job_id)

    @act("PUT", _PATH, Scope.JOBS, "job.tag", status_code=ACCEPTED, checks_limits=True)
    async def tag_job(request: ApiRequest, job_id: FromPath[str], tag: FromPath[str]) -> Receipt:
        """Gives a job a tag, in whatever state it is; one that it has already stays."""
        return await change(request, job_id, _own(tag), JobTags.add)

    @act("DELETE", _PATH, Scope.JOBS, "job.untag", status_code=ACCEPTED, checks_limits=True)
    async def untag_job(request: ApiRequest, job_id: FromPath[str], tag: FromPath[str]) -> Receipt:
        """Takes a tag from a job, in whatever state it is."""
        return await change(request, job_id, _own(tag), JobTags.remove)

    return tag_job, untag_job


def _own(tag: str) -> str:
    """A tag as it stands at the end of a path: it may hold slashes."""
    return tag.removeprefix("/")
