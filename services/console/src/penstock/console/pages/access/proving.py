"""Where a form leads whose act needs a proof of who the viewer is."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec
from litestar import MediaType

from penstock.console.pages.acting.through_api import Answer
from penstock.console.pages.forms import MOST_FORM_BYTES
from penstock.console.web.problems import ELEVATION_NEEDED, Problem

FORM: dict[str, Any] = {
    "include_in_schema": False,
    "media_type": MediaType.HTML,
    "request_max_body_size": MOST_FORM_BYTES,
}
"""Options of the handlers of such forms."""


def proof_address(answer: Answer, path: str) -> str:
    """The page that asks for the proof, where the API refused for want of it; else empty.

    Args:
        answer: of the API.
        path: to go to afterwards.
    """
    if answer.is_accepted:
        return ""
    try:
        problem = msgspec.json.decode(answer.body, type=Problem)
    except msgspec.MsgspecError:
        return ""
    return f"/elevate?next={quote(path, safe='')}" if problem.type == ELEVATION_NEEDED else ""
