"""Requests for a past moment: only what can answer them is asked, and nothing acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl

from litestar import Litestar
from litestar.middleware import ASGIMiddleware
from litestar.routes import HTTPRoute
from litestar.types import ASGIApp, Receive, Scope, Send

from penstock.console.past.moments import PARAMETER, BadMoment
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.acting import SAFE_METHODS, method_of
from penstock.console.web.rate_limits import RateLimits

READS_PER_MINUTE = 240
"""Of one person, by all tokens together: each may read some hundred messages from the broker."""
_OPTION = "answers_as_of"


class NoPast(BadMoment):
    """A read that is answered for what is now alone."""


def has_past() -> dict[str, Any]:
    """The option of a handler that answers for past moments, too."""
    return {_OPTION: True}


def answers_as_of(options: Mapping[str, Any]) -> bool:
    """Whether a handler answers for past moments."""
    return bool(options.get(_OPTION))


class PastRequests(ASGIMiddleware):
    """Refuses a past moment where it would be passed over: no answer of now is given for it.

    Args:
        limits: how many such requests a caller may send.
    """

    def __init__(self, limits: RateLimits | None = None) -> None:
        self._limits = limits or RateLimits(
            READS_PER_MINUTE, "requests for past moments are allowed a minute"
        )

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        given = _moments(scope)
        if given:
            self._check(scope, given)
        await next_app(scope, receive, send)

    def _check(self, scope: Scope, given: list[str]) -> None:
        """Raises BadMoment, TooManyRequestsException."""
        if method_of(scope) not in SAFE_METHODS:
            raise BadMoment(f"nothing can be done in the past: leave {PARAMETER} out to act now")
        if not answers_as_of(scope["route_handler"].opt):
            paths = ", ".join(sorted(_paths(scope["litestar_app"], scope["path"])))
            raise NoPast(f"this has no past: {PARAMETER} is answered by {paths}")
        if len(given) > 1:
            raise BadMoment(f"{PARAMETER} is given {len(given)} times")
        principal = scope["state"].get(PRINCIPAL)
        self._limits.take(principal.behind if principal else "")


def _moments(scope: Scope) -> list[str]:
    query = scope.get("query_string", b"").decode("latin-1")
    if PARAMETER not in query and "%" not in query:
        return []
    return [value for name, value in parse_qsl(query) if name == PARAMETER and value.strip()]


def _paths(app: Litestar, path: str) -> Iterator[str]:
    """Those of the API for a caller of the API, and pages for a viewer of pages."""
    is_api = path.startswith("/api/")
    for route in app.routes:
        if not isinstance(route, HTTPRoute) or route.path.startswith("/api/") != is_api:
            continue
        if any(answers_as_of(handler.opt) for handler in route.route_handlers):
            yield route.path_format
