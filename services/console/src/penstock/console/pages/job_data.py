"""What a job was called with, what it returned and what it wrote: for the scope payload alone.

Both pages read through the API, which records in the audit log who looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import msgspec
from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.api.job_logs import LogPage
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import AnyRequest
from penstock.console.pages.rendering import Pages
from penstock.console.parts import Console
from penstock.console.web.acting import looks_at_limits
from penstock.console.web.scopes import Scope, needs
from penstock.events.subjects import check_name

_MOST_JSON = 256_000
"""Characters of arguments or of a result that a page shows; the API has all of them."""


def routes(_: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""

    @get(
        "/jobs/{job_id:str}/payload",
        opt=needs(Scope.PAYLOAD) | looks_at_limits(),
        include_in_schema=False,
        media_type=MediaType.HTML,
    )
    async def payload(request: AnyRequest, job_id: FromPath[str]) -> Response[str]:
        check_name("job", job_id)
        answer = await through_api.send(request, "GET", f"/jobs/{job_id}/payload")
        shown = msgspec.json.decode(answer.body) if answer.is_accepted else {}
        page = pages.page(
            "payload.html",
            "Jobs",
            f"Payload of {job_id}",
            job_id=job_id,
            problem=answer.problem,
            parts=[(name, _readable(shown.get(name))) for name in ("arguments", "result")],
        )
        page.status_code = answer.status
        return page

    @get(
        "/jobs/{job_id:str}/logs",
        opt=needs(Scope.PAYLOAD) | looks_at_limits(),
        include_in_schema=False,
        media_type=MediaType.HTML,
    )
    async def logs(
        request: AnyRequest,
        job_id: FromPath[str],
        from_start: FromQuery[bool] = False,
        cursor: FromQuery[str] = "",
    ) -> Response[str]:
        check_name("job", job_id)
        start = {"cursor": cursor} if cursor else {"from_start": "true"} if from_start else {}
        path = f"/jobs/{job_id}/logs"
        answer = await through_api.send(request, "GET", path, query=urlencode(start))
        shown = msgspec.json.decode(answer.body, type=LogPage) if answer.is_accepted else None
        page = pages.page(
            "logs.html",
            "Jobs",
            f"Log of {job_id}",
            job_id=job_id,
            problem=answer.problem,
            shown=shown,
            is_newest=not start,
        )
        page.status_code = answer.status
        return page

    return payload, logs


def _readable(value: object) -> tuple[str, int]:
    """JSON on several lines, and the characters of it that are left out."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return text[:_MOST_JSON], max(0, len(text) - _MOST_JSON)
