"""Logins by another provider: there, back, and out."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic
from typing import Any

from litestar import MediaType, Request, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from penstock.console.access.logins import Logins, origin_of
from penstock.console.access.oidc import CALLBACK
from penstock.console.access.oidc.refusals import LoginRefused, ProviderFailed
from penstock.console.pages.forms import go
from penstock.console.pages.rendering import Pages
from penstock.console.parts import Console
from penstock.console.web import cookies
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.acting import records_itself
from penstock.console.web.credentials import Principal
from penstock.console.web.csrf import safe_path
from penstock.console.web.scopes import Scope, needs

AnyRequest = Request[Any, Any, Any]
_PAGE: dict[str, Any] = {"include_in_schema": False, "media_type": MediaType.HTML}
_ATTEMPT_SECONDS = 600
_FORBIDDEN, _TOO_MANY, _BAD_GATEWAY = 403, 429, 502
_UNKNOWN = "unknown"


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages; none without a provider."""
    control = console.control
    oidc, logins, limits = control.oidc, Logins(control), control.limits
    if oidc is None:
        return ()

    def cookie(name: str, value: str, seconds: int) -> str:
        return cookies.made(name, value, is_encrypted=control.is_encrypted, seconds=seconds)

    def refused(text: str, status: int) -> Response[str]:
        page = pages.plain("refused.html", "Not logged in", status, problem=text)
        page.headers["Set-Cookie"] = cookie(control.attempt_cookie_name, "", 0)
        return page

    @get("/login/oidc", opt=needs(Scope.PUBLIC), **_PAGE)
    async def begin(
        request: AnyRequest, next: FromQuery[str] = "/", proof: FromQuery[bool] = False
    ) -> Response[str]:
        caller: Principal | None = request.scope["state"][PRINCIPAL]
        elevates = caller.id if proof and caller and caller.method == "oidc" else ""
        try:
            address, attempt = await oidc.begin(safe_path(next), elevates)
        except ProviderFailed as error:
            return refused(str(error), _BAD_GATEWAY)
        return go(address, cookie(control.attempt_cookie_name, attempt, _ATTEMPT_SECONDS))

    # What the provider sends back is a GET of another site: the sealed cookie of this browser and
    # the state stand in for what other acts are checked by.
    @get(CALLBACK, opt=needs(Scope.PUBLIC) | records_itself("session.login"), **_PAGE)
    async def callback(request: AnyRequest) -> Response[str]:
        origin, now = origin_of(request), monotonic()
        limited = f"{_UNKNOWN} {origin.address}"  # no name is known yet: by address alone
        if limits.wait_seconds(origin.address, limited, now) > 0:
            return refused("Too many logins failed. Try again in 15 minutes.", _TOO_MANY)
        limits.failed(origin.address, limited, now)
        begun = cookies.only(request.headers.get("cookie", ""), control.attempt_cookie_name)
        caller: Principal | None = request.scope["state"][PRINCIPAL]
        try:
            person = await oidc.finish(dict(request.query_params.items()), begun)
            if person.elevates:
                _check_same(person.name, person.elevates, caller)
        except ProviderFailed as error:
            await logins.record_refusal(_UNKNOWN, "session.login", error.detail, origin)
            return refused(str(error), _BAD_GATEWAY)
        except LoginRefused as error:
            await logins.record_refusal(_UNKNOWN, "session.login", error.detail, origin)
            return refused(str(error), _FORBIDDEN)
        limits.succeeded(origin.address, limited)
        if person.elevates:
            await logins.note_elevation(person.elevates, person.name, origin)
            return go(safe_path(person.next), cookie(control.attempt_cookie_name, "", 0))
        secret = await logins.open_vouched(person, oidc, origin)
        await logins.end_former(caller)
        seconds = int(oidc.longest.total_seconds())
        return go(safe_path(person.next), cookie(control.cookie_name, secret, seconds))

    @get("/logged-out", opt=needs(Scope.PUBLIC), **_PAGE)
    async def logged_out() -> Response[str]:
        address = await oidc.logout_address()
        return pages.plain("logged_out.html", "Logged out", 200, problem="", address=address)

    return begin, callback, logged_out


def _check_same(name: str, session_id: str, caller: Principal | None) -> None:
    """Refuses to elevate a session of another person, or of another browser."""
    if caller is None or caller.id != session_id or caller.name != name:
        raise LoginRefused(
            "The provider vouches for another person than the one who is logged in here.",
            f"{name} is not whose session was to be elevated",
        )
