"""The viewer's own page: role, browsers, API tokens; and the proof before dangerous acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from litestar import Response, post
from litestar.exceptions import TooManyRequestsException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery

from penstock.console.access.logins import Logins, origin_of
from penstock.console.api.access.tokens import MadeToken, token_items
from penstock.console.pages.access.proving import FORM, proof_address
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import AnyRequest, viewer
from penstock.console.pages.forms import go, read_all_fields, read_fields
from penstock.console.pages.rendering import Pages, page_at
from penstock.console.pages.sections import SYSTEM as SECTIONS
from penstock.console.parts import Console
from penstock.console.web.acting import records_itself
from penstock.console.web.csrf import safe_path
from penstock.console.web.scopes import Scope, needs
from penstock.events.envelope import utc_now
from penstock.operations.console_access import DEFAULT_DAYS

_AREA, _HERE = "System", "/account"
_BAD_REQUEST, _TOO_MANY = 400, 429


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages and their forms."""
    control = console.control
    logins = Logins(control)

    def shown(
        request: AnyRequest,
        problem: str = "",
        status: int = 200,
        made: MadeToken | None = None,
        entered: Mapping[str, list[str]] | None = None,
    ) -> Response[str]:
        me, now = viewer(request), utc_now()
        sessions = control.directory.sessions.values() if me.kind == "session" else ()
        page = pages.page(
            "account.html",
            _AREA,
            "Me and tokens",
            sections=SECTIONS,
            me=me,
            sessions=[one for one in sessions if one.account == me.name and one.is_open(now)],
            tokens=token_items(console, me),
            scopes=sorted(me.scopes),
            days=DEFAULT_DAYS,
            read_only=control.rights.read_only_because if control.read_only else "",
            problem=problem,
            made=made,
            entered=entered or {},
        )
        page.status_code = status
        return page

    @page_at("/account")
    async def account(request: AnyRequest) -> Response[str]:
        return shown(request)

    @post("/account/tokens", opt=needs(Scope.READ) | records_itself("page.act"), **FORM)
    async def make_token(request: AnyRequest) -> Response[str]:
        entered = await read_all_fields(request)
        body = {
            "name": _first(entered, "name"),
            "scopes": entered.get("scopes", []),
            "days": _whole(_first(entered, "days")),
            "pools": _first(entered, "pools").split(),
            "queues": _first(entered, "queues").split(),
        }
        answer = await through_api.send(request, "POST", "/tokens", body)
        if proof := proof_address(answer, _HERE):
            return go(proof)
        if not answer.is_accepted:
            problem = f"No token was made. {answer.problem}"
            return shown(request, problem, answer.status, entered=entered)
        made = msgspec.json.decode(answer.body, type=MadeToken)
        return shown(request, made=made)

    @post(
        "/account/tokens/{token_id:str}/revoke",
        opt=needs(Scope.READ) | records_itself("page.act"),
        **FORM,
    )
    async def revoke_token(request: AnyRequest, token_id: FromPath[str]) -> Response[str]:
        answer = await through_api.send(request, "DELETE", f"/tokens/{token_id}")
        return go(_HERE) if answer.is_accepted else shown(request, answer.problem, answer.status)

    # The action's name lets also a console that only reads end sessions.
    @post(
        "/account/sessions/{session_id:str}/end",
        opt=needs(Scope.READ) | records_itself("session.page"),
        **FORM,
    )
    async def end_session(request: AnyRequest, session_id: FromPath[str]) -> Response[str]:
        answer = await through_api.send(request, "DELETE", f"/me/sessions/{session_id}")
        return go(_HERE) if answer.is_accepted else shown(request, answer.problem, answer.status)

    def proof_page(request: AnyRequest, wanted: str, problem: str, status: int) -> Response[str]:
        me = viewer(request)
        return pages.plain(
            "elevate.html",
            "Is it you?",
            status,
            problem=problem,
            next=safe_path(wanted),
            me=me,
            button=control.oidc.button if control.oidc else "",
        )

    @page_at("/elevate")
    async def proof_form(request: AnyRequest, next: FromQuery[str] = _HERE) -> Response[str]:
        return proof_page(request, next, "", 200)

    @post("/elevate", opt=needs(Scope.READ) | records_itself("session.elevate"), **FORM)
    async def prove(request: AnyRequest) -> Response[str]:
        me, fields = viewer(request), await read_fields(request)
        wanted = fields.get("next", _HERE)
        if me.method != "password":
            return proof_page(request, wanted, "This session has no password.", _BAD_REQUEST)
        try:
            is_right = await logins.elevate(me, fields.get("password", ""), origin_of(request))
        except TooManyRequestsException as error:
            return proof_page(request, wanted, f"{error.detail}.", _TOO_MANY)
        if not is_right:
            return proof_page(request, wanted, "The password is wrong.", _BAD_REQUEST)
        return go(safe_path(wanted))

    return account, make_token, revoke_token, end_session, proof_form, prove


def _first(entered: Mapping[str, list[str]], name: str) -> str:
    return entered.get(name, [""])[0].strip()


def _whole(text: str) -> int | str:
    """A number for the API, which says what is wrong with anything else."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text
