"""Forms that work without script: their fields, and where they lead."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException

from penstock.console.web.acting import looks_at_limits, only_computes, records_itself
from penstock.console.web.scopes import Scope, needs

MOST_FORM_BYTES = 16_384
_MOST_FIELDS = 150
_SEE_OTHER = 303
COMPUTING_FORM: dict[str, Any] = {
    # The request to the API that it sends is the one that stands in the audit log.
    "opt": needs(Scope.READ) | records_itself("page.compute") | only_computes() | looks_at_limits(),
    "include_in_schema": False,
    "media_type": MediaType.HTML,
    "request_max_body_size": MOST_FORM_BYTES,
}
"""Options of the handlers of forms by which something is computed."""


async def read_all_fields(request: Request[Any, Any, Any]) -> dict[str, list[str]]:
    """The fields of a form with all their values. Raises HTTPException: it is none."""
    try:
        text = (await request.body()).decode("utf-8")
        return parse_qs(text, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise HTTPException("this is no form", status_code=400) from None


async def read_fields(request: Request[Any, Any, Any]) -> dict[str, str]:
    """The fields of a form, the first value of each. Raises HTTPException: it is none."""
    return {name: values[0] for name, values in (await read_all_fields(request)).items()}


def go(path: str, cookie: str = "") -> Response[str]:
    """Has the browser load another page of this console."""
    headers = {"Location": path, **({"Set-Cookie": cookie} if cookie else {})}
    return Response("", status_code=_SEE_OTHER, media_type=MediaType.TEXT, headers=headers)
