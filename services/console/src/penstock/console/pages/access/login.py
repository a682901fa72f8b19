"""Login, logout, and the page of a setup link: forms that work without script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from litestar import MediaType, Request, Response, get, post
from litestar.exceptions import TooManyRequestsException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.access.logins import LONGEST, Logins, origin_of
from penstock.console.access.passwords import LEAST_LENGTH, BadPassword
from penstock.console.pages.forms import MOST_FORM_BYTES, go, read_fields
from penstock.console.pages.rendering import Pages
from penstock.console.parts import Console
from penstock.console.web import cookies
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.acting import records_itself
from penstock.console.web.csrf import safe_path
from penstock.console.web.scopes import Scope, needs
from penstock.events.subjects import BadName
from penstock.operations.console_access import AccessRefused

AnyRequest = Request[Any, Any, Any]
_WRONG = "Name or password is wrong."


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""
    logins = Logins(console.control)
    name, is_encrypted = console.control.cookie_name, console.control.is_encrypted
    page: dict[str, Any] = {"include_in_schema": False, "media_type": MediaType.HTML}
    form: dict[str, Any] = {**page, "request_max_body_size": MOST_FORM_BYTES}

    def login_page(problem: str, wanted: str, account: str, status: int) -> Response[str]:
        return pages.plain(
            "login.html",
            "Log in",
            status,
            problem=problem,
            next=safe_path(wanted),
            account=account[:64],
            button=console.control.oidc.button if console.control.oidc else "",
        )

    def setup_page(problem: str, account: str, status: int) -> Response[str]:
        return pages.plain(
            "setup.html",
            "Set a password",
            status,
            problem=problem,
            account=account[:64],
            least=LEAST_LENGTH,
        )

    @get("/login", opt=needs(Scope.PUBLIC), **page)
    async def login_form(next: FromQuery[str] = "/") -> Response[str]:
        return login_page("", next, "", 200)

    @post("/login", opt=needs(Scope.PUBLIC) | records_itself("session.login"), **form)
    async def login(request: AnyRequest) -> Response[str]:
        fields = await read_fields(request)
        account, wanted = fields.get("account", ""), fields.get("next", "/")
        try:
            secret = await logins.login(account, fields.get("password", ""), origin_of(request))
        except TooManyRequestsException as error:
            return login_page(
                f"{error.detail[:1].upper()}{error.detail[1:]}.", wanted, account, 429
            )
        if secret is None:
            return login_page(_WRONG, wanted, account, 403)
        await logins.end_former(request.scope["state"][PRINCIPAL])
        seconds = int(LONGEST.total_seconds())
        cookie = cookies.made(name, secret, is_encrypted=is_encrypted, seconds=seconds)
        return go(safe_path(wanted), cookie)

    @post("/logout", opt=needs(Scope.READ) | records_itself("session.logout"), **form)
    async def logout(request: AnyRequest) -> Response[str]:
        principal = request.scope["state"][PRINCIPAL]
        if principal.kind == "session":
            await logins.end(principal.id, principal.name, origin_of(request))
        cookie = cookies.made(name, "", is_encrypted=is_encrypted, seconds=0)
        return go("/logged-out" if principal.method == "oidc" else "/login", cookie)

    @get("/setup/{account:str}/{secret:str}", opt=needs(Scope.PUBLIC), **page)
    async def setup_form(account: FromPath[str], secret: FromPath[str]) -> Response[str]:
        del secret  # looked at when the password is set
        return setup_page("", account, 200)

    @post(
        "/setup/{account:str}/{secret:str}",
        opt=needs(Scope.PUBLIC) | records_itself("account.set_password"),
        **form,
    )
    async def setup(
        request: AnyRequest, account: FromPath[str], secret: FromPath[str]
    ) -> Response[str]:
        fields = await read_fields(request)
        if fields.get("password") != fields.get("again"):
            return setup_page("The two passwords differ.", account, 400)
        try:
            await logins.set_up(account, secret, fields.get("password", ""), origin_of(request))
        except (AccessRefused, BadName, BadPassword) as error:
            return setup_page(f"{str(error)[:1].upper()}{str(error)[1:]}.", account, 400)
        except TooManyRequestsException as error:
            return setup_page(error.detail, account, 429)
        return go("/login")

    return login_form, login, logout, setup_form, setup
