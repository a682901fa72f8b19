"""How a handler says what it does, so that it stands in the audit log.

``@act("POST", "/jobs/{job_id:str}/cancel", Scope.JOBS, "job.cancel")`` declares an endpoint that
acts. Its entry ``begun`` is stored before it runs, and how it ended before its answer is sent:
without an entry nothing is done. An application with an acting handler that names no action is not
made (:func:`check_actions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from litestar import Request
from litestar.exceptions import PermissionDeniedException
from litestar.handlers import HTTPRouteHandler, delete, post, put
from litestar.types import Scope as ASGIScope

from penstock.console.web.bodies import BodyMayBeAbsent, StrictBody
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope, needs

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_ACT = "act"
_ACTION, _OWN_RECORD, _CHECKS_LIMITS = "action", "records_itself", "checks_limits"
_IS_DANGEROUS = "is_dangerous"
_ANSWERS_ONCE = "answers_once"
_COMPUTES = "computes"
_METHODS = {"POST": post, "PUT": put, "DELETE": delete}


@dataclass
class Act:
    """What a handler adds to the entry of its act.

    Attributes:
        target: what it acts on, such as ``job:ID``; the request's path unless the handler says.
        before: values that it replaced.
        after: the new values.
        detail: what else there is to say.
    """

    action: str
    target: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    after: Mapping[str, str] = field(default_factory=dict)
    detail: str = ""


def act(
    method: str,
    path: str,
    scope: Scope,
    action: str,
    *,
    checks_limits: bool = False,
    is_dangerous: bool = False,
    computes: bool = False,
    shows_secret: bool = False,
    **options: Any,
) -> Callable[[Callable[..., Any]], HTTPRouteHandler]:
    """Declares an endpoint that acts.

    Args:
        method: ``POST``, ``PUT`` or ``DELETE``.
        path: below ``/api/v1``.
        scope: that the caller needs.
        action: as it stands in the audit log, such as ``job.cancel``.
        checks_limits: see :func:`looks_at_limits`.
        is_dangerous: a person must have proved within the last quarter of an hour who it is.
        computes: it takes the console's time and changes nothing, so a read-only one does it, too.
        shows_secret: its answer holds what is shown once, so no copy of it is kept.
        options: of Litestar's handler.
    """
    named = (
        needs(scope)
        | records(action)
        | {
            _IS_DANGEROUS: is_dangerous,
            _ANSWERS_ONCE: shows_secret,
        }
        | (looks_at_limits() if checks_limits else {})
        | (only_computes() if computes else {})
    )
    return _METHODS[method](
        path,
        opt=named,
        dto=StrictBody,
        return_dto=None,
        request_class=BodyMayBeAbsent,
        **options,
    )


def records(action: str) -> dict[str, Any]:
    """The option of a handler whose calls stand in the audit log: a view of a payload, an export.

    ``@read("/jobs/{job_id:str}/payload", Scope.PAYLOAD, action="payload.view")``
    """
    return {_ACTION: action}


def looks_at_limits() -> dict[str, Any]:
    """The option of a handler that calls :func:`check_limits`, or sends requests to one that does.

    Without it a token that is limited to pools or queues is refused where something is changed, or
    where payloads are shown.
    """
    return {_CHECKS_LIMITS: True}


def records_itself(action: str) -> dict[str, Any]:
    """The option of the handlers of logins, whose caller is known only when they have run."""
    return {_ACTION: action, _OWN_RECORD: True}


def only_computes() -> dict[str, Any]:
    """The option of a handler that changes nothing, although its method is not a safe one."""
    return {_COMPUTES: True}


def method_of(scope: ASGIScope) -> str:
    """The method of an HTTP request."""
    return str(scope.get("method", ""))


def action_of(options: Mapping[str, Any]) -> str:
    """The action that a handler's options name; empty for none."""
    return str(options.get(_ACTION, ""))


def is_own_record(options: Mapping[str, Any]) -> bool:
    """Whether the handler writes its entries itself."""
    return bool(options.get(_OWN_RECORD))


def has_checked_limits(options: Mapping[str, Any]) -> bool:
    """Whether the handler looks at the pools and queues that a token is limited to."""
    return bool(options.get(_CHECKS_LIMITS))


def is_dangerous(options: Mapping[str, Any]) -> bool:
    """Whether a session must be elevated for it."""
    return bool(options.get(_IS_DANGEROUS))


def shows_secret(options: Mapping[str, Any]) -> bool:
    """Whether the answer holds what is shown once."""
    return bool(options.get(_ANSWERS_ONCE))


def changes_nothing(options: Mapping[str, Any]) -> bool:
    """Whether it only computes."""
    return bool(options.get(_COMPUTES))


class ElevationNeeded(PermissionDeniedException):
    """The person must prove again who it is."""

    def __init__(self) -> None:
        super().__init__(
            "this needs a proof of who you are that is younger than 15 minutes: "
            "POST /api/v1/session/elevate with your password, or the page /elevate"
        )


def acting(request: Request[Any, Any, Any]) -> Act:
    """The act of this request, for its handler to add to."""
    given: Act = request.scope["state"][_ACT]
    return given


def begin(state: dict[str, Any], action: str, target: str) -> Act:
    """Puts an act into a request's state."""
    state[_ACT] = begun = Act(action=action, target=target)
    return begun


def check_limits(principal: Principal, *, pool: str = "", queue: str = "") -> None:
    """Refuses a token that is limited to other pools or queues.

    Args:
        pool: that is acted on, or that serves the queue; empty: unknown.
        queue: that is acted on; empty: none.

    Raises:
        PermissionDeniedException: the token does not cover it.
    """
    if not principal.is_limited or pool in principal.pools or queue in principal.queues:
        return
    covered = ", ".join(sorted({*principal.pools, *principal.queues}))
    raise PermissionDeniedException(f"{principal.name} is limited to {covered}")


def check_actions(handlers: Iterable[HTTPRouteHandler]) -> None:
    """Raises RuntimeError: a handler acts and names no action for the audit log."""
    for handler in handlers:
        is_acting = not {str(method) for method in handler.http_methods} <= SAFE_METHODS
        if is_acting and not action_of(handler.opt):
            raise RuntimeError(f"{sorted(handler.paths)} acts and names no action: use @act")
