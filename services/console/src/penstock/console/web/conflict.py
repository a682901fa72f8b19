"""The refusal of an act that what is there does not allow."""

from __future__ import annotations

from litestar.exceptions import HTTPException
from litestar.status_codes import HTTP_409_CONFLICT


class Conflict(HTTPException):
    """The act is a good one, and what is there does not allow it: status 409."""

    status_code = HTTP_409_CONFLICT
