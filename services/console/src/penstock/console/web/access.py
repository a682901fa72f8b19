"""Checks the caller's scope before a handler runs, and answers 304 where nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial
from time import monotonic
from typing import Any, Protocol
from urllib.parse import quote

from litestar import MediaType
from litestar.datastructures import Headers
from litestar.exceptions import (
    NotAuthorizedException,
    PermissionDeniedException,
    TooManyRequestsException,
)
from litestar.handlers import HTTPRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from penstock.console.read_models.fair_reads import CALLER
from penstock.console.web.acting import (
    SAFE_METHODS,
    ElevationNeeded,
    action_of,
    changes_nothing,
    has_checked_limits,
    is_dangerous,
    is_own_record,
    method_of,
)
from penstock.console.web.credentials import Authenticator, NotesUse, Principal
from penstock.console.web.csrf import check_origin
from penstock.console.web.entity_tags import holds, not_modified, unless_held
from penstock.console.web.queries import check_query
from penstock.console.web.rate_limits import CallerLimits
from penstock.console.web.scopes import Scope as AccessScope
from penstock.console.web.scopes import scope_of

PRINCIPAL = "principal"
"""Name in the request's state under which handlers find the caller."""
_ADMISSION = "admission"
ADMISSION_SECONDS = 1.0
"""How long a stream may go on after its caller's access has ended."""


class ChangesWith(StrEnum):
    """What an answer is made of, and so when a stored copy of it is outdated."""

    LOG = "log"
    PRESENT = "present"


_OPTION, _TAGGED = "changes_with", "tagged"
_SEND_ONE = "send a token: Authorization: Bearer TOKEN"
_NOT_VALID = "the token is not valid or has expired; penstock api token create makes another"
Version = Callable[[ChangesWith], str]


def admission(scope: Scope) -> Callable[[], bool]:
    """Whether the caller of a request may still read, for streams that go on: at most each second.

    A session that ended, a token that was revoked and an account that was disabled may not.
    """
    is_admitted: Callable[[], bool] = scope["state"][_ADMISSION]
    asked_at, answer = monotonic(), True

    def ask() -> bool:
        nonlocal asked_at, answer
        if answer and monotonic() - asked_at >= ADMISSION_SECONDS:
            asked_at, answer = monotonic(), is_admitted()
        return answer

    return ask


def changes_with(source: ChangesWith) -> dict[str, Any]:
    """The option of a handler whose answer is the same until its source changes."""
    return {_OPTION: source}


def tagged() -> dict[str, Any]:
    """The option of a handler whose answers bear an entity tag of their own."""
    return {_TAGGED: True}


def is_tagged(options: Mapping[str, Any]) -> bool:
    """Whether the handler's answers bear an entity tag of their own."""
    return bool(options.get(_TAGGED))


class Recording(Protocol):
    """The audit log, as far as the middleware needs it."""

    async def run(
        self,
        principal: Principal,
        action: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        handler: ASGIApp,
    ) -> None:
        """Runs a handler between two entries."""
        ...

    async def refused(self, actor: str, action: str, scope: Scope, detail: str) -> None:
        """Records a refusal."""
        ...


class Access(ASGIMiddleware):
    """Runs before every handler.

    Args:
        authenticator: finds out who calls.
        version: of what answers are made of, as text.
        recorder: writes the audit log.
        read_only: why all acts but the ends of sessions are refused, as a sentence; empty where
            they are not.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        version: Version,
        recorder: Recording,
        read_only: str = "",
    ) -> None:
        self._authenticator, self._version, self._recorder = authenticator, version, recorder
        self._read_only = read_only
        self._limits = CallerLimits()

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        handler = scope["route_handler"]
        options: dict[str, Any] = handler.opt
        headers = Headers.from_scope(scope)
        principal = await self._admitted(options, headers, scope)
        if principal is None and scope_of(options) is not AccessScope.PUBLIC:
            if _is_page(handler) and "text/html" in headers.get("accept", ""):
                await _to_login(scope, send)
                return
            raise _unauthorised(_NOT_VALID if "authorization" in headers else _SEND_ONE)
        scope["state"][PRINCIPAL] = principal
        scope["state"][_ADMISSION] = partial(self._is_admitted, principal, options, headers)
        CALLER.set(principal.behind if principal else "")
        if isinstance(handler, HTTPRouteHandler) and handler.include_in_schema:
            check_query(handler, scope["query_string"], scope["path_params"])
        source = options.get(_OPTION)
        counted = await self._counted(principal, options, scope) if principal else {}
        caching = {"cache-control": "no-store"}
        if is_tagged(options):
            caching = {"cache-control": "private, no-cache", "vary": "Authorization, Cookie"}
        if source is not None:
            caching = {
                "etag": f'W/"{self._version(source)}"',
                "cache-control": "private, no-cache",
                "vary": "Authorization, Cookie",
            }
        send_cached = _with_headers(send, caching | counted)
        action = action_of(options)
        if principal is not None and action and not is_own_record(options):
            await self._recorder.run(principal, action, scope, receive, send_cached, next_app)
        elif source is not None and holds(headers, caching["etag"]):
            await not_modified(send_cached)
        elif is_tagged(options):
            await next_app(scope, receive, unless_held(headers, send_cached))
        else:
            await next_app(scope, receive, send_cached)

    async def _admitted(
        self, options: Mapping[str, Any], headers: Headers, scope: Scope
    ) -> Principal | None:
        """The caller, if it may; refusals are recorded.

        Raises:
            PermissionDeniedException: the caller may not.
        """
        principal = self._authenticator.principal(headers)
        action = action_of(options) or f"{method_of(scope)} {_template(scope)}"
        try:
            needed = scope_of(dict(options))
            is_by_browser = needed is AccessScope.PUBLIC or not _by_header(principal)
            if is_by_browser and method_of(scope) not in SAFE_METHODS:
                check_origin(headers)
            if needed is AccessScope.PUBLIC:
                return principal
            if principal is not None:
                self._check_read_only(method_of(scope), options)
                _check(principal, needed, method_of(scope), options)
        except PermissionDeniedException as error:
            name = principal.name if principal else "unknown"
            await self._recorder.refused(name, action, scope, error.detail)
            raise
        if principal is None and "authorization" in headers:
            await self._recorder.refused("unknown", action, scope, "no valid token")
        if principal is not None:
            self._note_use(principal, scope)
        return principal

    async def _counted(
        self, principal: Principal, options: Mapping[str, Any], scope: Scope
    ) -> dict[str, str]:
        """Headers that say how much is left of this minute; a login has limits of its own.

        Raises:
            TooManyRequestsException: nothing is left; of such refusals few are recorded.
        """
        is_acting, action = method_of(scope) not in SAFE_METHODS, action_of(options)
        if not is_acting and not action:
            return {}
        needs_little = scope_of(dict(options)) is AccessScope.READ and not is_own_record(options)
        try:
            return self._limits.take(
                principal.name, principal.behind, is_acting=is_acting, is_small=needs_little
            )
        except TooManyRequestsException as error:
            name = action or f"{method_of(scope)} {_template(scope)}"
            await self._recorder.refused(principal.name, name, scope, error.detail)
            raise

    def _is_admitted(
        self, former: Principal | None, options: Mapping[str, Any], headers: Headers
    ) -> bool:
        """Whether a request would be let in now as it was before, by the same caller."""
        principal = self._authenticator.principal(headers)
        if principal is None or former is None:
            return former is None
        is_same = (principal.kind, principal.id, principal.name) == (
            former.kind,
            former.id,
            former.name,
        )
        return is_same and scope_of(dict(options)) in principal.scopes

    def _check_read_only(self, method: str, options: Mapping[str, Any]) -> None:
        is_acting = method not in SAFE_METHODS and not changes_nothing(options)
        if self._read_only and is_acting and not action_of(options).startswith("session."):
            raise PermissionDeniedException(self._read_only)

    def _note_use(self, principal: Principal, scope: Scope) -> None:
        if isinstance(self._authenticator, NotesUse):
            client = scope.get("client")
            self._authenticator.note_use(principal, str(client[0]) if client else "")


def _check(
    principal: Principal, needed: AccessScope | None, method: str, options: Mapping[str, Any]
) -> None:
    if needed is None or needed not in principal.scopes:
        raise PermissionDeniedException(
            f"{principal.name} has the scopes {', '.join(sorted(principal.scopes))}; this "
            f"needs {needed or 'one that it does not name'}"
        )
    is_bounded = method not in SAFE_METHODS or needed in {AccessScope.PAYLOAD, AccessScope.ADMIN}
    if is_bounded and principal.is_limited and not has_checked_limits(options):
        raise PermissionDeniedException(
            f"{principal.name} is limited to some pools or queues, and this acts on more"
        )
    if is_dangerous(options) and principal.kind == "session" and not principal.is_elevated:
        raise ElevationNeeded


def _by_header(principal: Principal | None) -> bool:
    """Whether nothing is done by the cookie or the address, which a browser sends for any site."""
    return principal is None or principal.kind == "token"


def _template(scope: Scope) -> str:
    """The path with the names of its parts, not their values."""
    return str(scope.get("path_template") or "")


def _is_page(handler: Any) -> bool:
    return getattr(handler, "media_type", None) == MediaType.HTML


def _unauthorised(detail: str) -> NotAuthorizedException:
    return NotAuthorizedException(
        detail,
        headers={"WWW-Authenticate": 'Bearer realm="penstock"'},
    )


async def _to_login(scope: Scope, send: Send) -> None:
    query = scope.get("query_string", b"").decode("latin-1")
    wanted = scope["path"] + (f"?{query}" if query else "")
    location = f"/login?next={quote(wanted, safe='')}"
    headers = [(b"location", location.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 303, "headers": headers})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _with_headers(send: Send, added: Mapping[str, str]) -> Send:
    pairs = [(name.encode(), value.encode()) for name, value in added.items()]

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            named = {name.lower() for name, _ in message["headers"]}
            further = [pair for pair in pairs if pair[0] not in named]
            message["headers"] = [*message["headers"], *further]
        await send(message)

    return send_with_headers
