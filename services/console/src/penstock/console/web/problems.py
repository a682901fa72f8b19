"""Errors as RFC 9457 problem details: what was found, what was expected, what to do next."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.datastructures import Headers
from litestar.exceptions import HTTPException, ValidationException
from litestar.status_codes import (
    HTTP_400_BAD_REQUEST,
    HTTP_403_FORBIDDEN,
    HTTP_404_NOT_FOUND,
    HTTP_409_CONFLICT,
    HTTP_410_GONE,
    HTTP_429_TOO_MANY_REQUESTS,
    HTTP_500_INTERNAL_SERVER_ERROR,
)
from litestar.types import ExceptionHandlersMap

from penstock.bus.access import NotPermitted
from penstock.bus.protocol import BusError
from penstock.console.access.passwords import BadPassword
from penstock.console.access.rights import BY_KEY, NOT_READABLE
from penstock.console.alerts.webhook import SendFailed
from penstock.console.computing.commands import (
    BadComputation,
    ComputationFailed,
    TooManyComputations,
)
from penstock.console.core.alerts.channels import BadChannel
from penstock.console.core.computing import NothingToTry
from penstock.console.core.cursors import BadCursor
from penstock.console.core.job_query import BadFilter
from penstock.console.past.moments import BadMoment, NotKept
from penstock.console.read_models.fair_reads import TooManyReads
from penstock.console.web.acting import SAFE_METHODS, ElevationNeeded
from penstock.console.web.entity_tags import PRECONDITION_FAILED
from penstock.console.web.once import MAX_BODY_BYTES
from penstock.events.subjects import BadName
from penstock.jobs.errors import BadArguments, BadSchedule, BadTime, Changed, JobsError, NotFound
from penstock.jobs.workflows.declared.validation import BadDefinition
from penstock.operations.console_access import AccessRefused
from penstock.operations.muted_functions import MuteRefused

log = logging.getLogger("penstock.console")

MEDIA_TYPE = "application/problem+json"
ELEVATION_NEEDED = "urn:penstock:problem:elevation-needed"
"""Type of the refusal of what a person may do only just after a proof of who it is."""
_API = "/api/v1/"
_NOT_DONE = f"the broker does not let this console do it: {BY_KEY}"
_refused_by_broker: set[str] = set()
"""Endpoints whose refusal by the broker was logged: once by process, each."""
_BAD_GATEWAY, _UNAVAILABLE, _UNPROCESSABLE = 502, 503, 422
TITLES = {
    400: "The request cannot be understood",
    401: "Valid credentials are needed",
    403: "These credentials do not allow this",
    404: "There is no such thing",
    405: "Another method is needed",
    410: "It is not kept any more",
    412: "It changed meanwhile",
    409: "What is there does not allow this",
    413: "The body is too large",
    429: "Too many requests",
    500: "The console failed",
    502: "The receiver did not take it",
    503: "The broker does not answer",
}
"""What each status of an answer means here."""


class FieldProblem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is wrong with one part of a request.

    Attributes:
        pointer: JSON pointer into the body; empty where it is a parameter.
        parameter: name of a parameter of the query or path.
    """

    detail: str
    pointer: str = ""
    parameter: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A problem as RFC 9457 describes it.

    Attributes:
        request_id: to look for in the console's log.
        errors: the parts of the request that are wrong.
    """

    status: int
    title: str
    detail: str = ""
    type: str = "about:blank"
    instance: str = ""
    request_id: str = ""
    errors: tuple[FieldProblem, ...] = ()


def respond(
    request: Request[Any, Any, Any],
    status: int,
    detail: str,
    errors: tuple[FieldProblem, ...] = (),
    headers: dict[str, str] | None = None,
    kind: str = "about:blank",
    title: str = "",
) -> Response[Problem]:
    """The answer to a request that failed."""
    problem = Problem(
        status=status,
        title=title or TITLES.get(status, "The request failed"),
        detail=detail,
        type=kind,
        instance=request.url.path,
        request_id=request.state.get("request_id", ""),
        errors=errors,
    )
    return Response(problem, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def refusal(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """The answer to a request that was refused."""
    detail = error.detail if error.detail != TITLES.get(error.status_code) else ""
    if detail == HTTPStatus(error.status_code).phrase:
        detail = _of_status(request, error)
    kind = ELEVATION_NEEDED if isinstance(error, ElevationNeeded) else "about:blank"
    headers = dict(error.headers or {})
    return respond(request, error.status_code, detail, headers=headers, kind=kind)


def _of_status(request: Request[Any, Any, Any], error: HTTPException) -> str:
    """What to say of an error of which the framework says no more than the name of its status."""
    path = request.url.path
    match error.status_code:
        case 404 if path.startswith(_API):
            return f"no endpoint has this path; {_API}openapi.json describes them all"
        case 404:
            return "there is no such page"
        case 405:
            allowed = Headers(error.headers or {}).get("allow", "")
            return f"found {request.method}, expected one of {allowed}"
        case 413 if path.startswith(_API):
            return f"expected at most {MAX_BODY_BYTES:,} bytes"
    return error.detail


def _invalid(request: Request[Any, Any, Any], error: ValidationException) -> Response[Problem]:
    errors = tuple(_field(one) for one in error.extra or () if isinstance(one, dict))
    return respond(request, HTTP_400_BAD_REQUEST, error.detail, errors)


def _field(error: dict[str, Any]) -> FieldProblem:
    key, source = str(error.get("key", "")), str(error.get("source", ""))
    is_body = source in ("", "body")
    return FieldProblem(
        detail=str(error.get("message", "")),
        pointer="/" + key.replace(".", "/") if is_body else "",
        parameter="" if is_body else key,
    )


def _bad_request(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    return respond(request, HTTP_400_BAD_REQUEST, str(error))


def _not_sent(request: Request[Any, Any, Any], error: SendFailed) -> Response[Problem]:
    return respond(request, _BAD_GATEWAY, f"the channel did not take the message: {error}")


def _not_kept(request: Request[Any, Any, Any], error: NotKept) -> Response[Problem]:
    return respond(request, HTTP_410_GONE, str(error))


def _no_such(request: Request[Any, Any, Any], error: NotFound) -> Response[Problem]:
    return respond(request, HTTP_404_NOT_FOUND, str(error))


def _changed(request: Request[Any, Any, Any], error: Changed) -> Response[Problem]:
    return respond(request, PRECONDITION_FAILED, str(error))


def _refused(request: Request[Any, Any, Any], error: JobsError) -> Response[Problem]:
    return respond(request, HTTP_409_CONFLICT, str(error))


def _not_permitted(request: Request[Any, Any, Any], error: NotPermitted) -> Response[Problem]:
    what = f"{request.method} {request.scope.get('path_template', '')}"
    level = logging.DEBUG if what in _refused_by_broker else logging.INFO
    _refused_by_broker.add(what)
    log.log(level, "%s: %s", what, error)
    detail = NOT_READABLE if request.method in SAFE_METHODS else _NOT_DONE
    return respond(request, HTTP_403_FORBIDDEN, detail)


def _no_broker(request: Request[Any, Any, Any], error: BusError) -> Response[Problem]:
    return respond(request, _UNAVAILABLE, str(error), headers={"Retry-After": "2"})


def _not_computed(request: Request[Any, Any, Any], error: ComputationFailed) -> Response[Problem]:
    status = HTTP_400_BAD_REQUEST if isinstance(error, BadComputation) else _UNPROCESSABLE
    return respond(request, status, str(error), title="It could not be computed")


def _too_many(request: Request[Any, Any, Any], error: TooManyComputations) -> Response[Problem]:
    return respond(
        request,
        _UNAVAILABLE,
        str(error),
        headers={"Retry-After": "2"},
        title="The console computes as much as it may",
    )


def _too_many_reads(request: Request[Any, Any, Any], error: TooManyReads) -> Response[Problem]:
    return respond(request, HTTP_429_TOO_MANY_REQUESTS, str(error), headers={"Retry-After": "1"})


def _failed(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    log.error("%s %s failed: %r", request.method, request.url.path, error, exc_info=error)
    return respond(request, HTTP_500_INTERNAL_SERVER_ERROR, "look for request_id in its log")


HANDLERS: ExceptionHandlersMap = {
    ValidationException: _invalid,
    HTTPException: refusal,
    BadCursor: _bad_request,
    BadFilter: _bad_request,
    BadMoment: _bad_request,
    NotKept: _not_kept,
    BadName: _bad_request,
    BadChannel: _bad_request,
    SendFailed: _not_sent,
    BadArguments: _bad_request,
    BadTime: _bad_request,
    BadSchedule: _bad_request,
    BadDefinition: _bad_request,
    NotFound: _no_such,
    Changed: _changed,
    JobsError: _refused,
    NotPermitted: _not_permitted,
    AccessRefused: _bad_request,
    MuteRefused: _bad_request,
    BadPassword: _bad_request,
    BusError: _no_broker,
    NothingToTry: _bad_request,
    ComputationFailed: _not_computed,
    TooManyComputations: _too_many,
    TooManyReads: _too_many_reads,
    Exception: _failed,
}
