"""Accounts: who may log in, with which role; new ones, and links by which passwords are set."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from litestar import MediaType, Response, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.access.roles import ROLES
from penstock.console.api.access.accounts import SetupLink
from penstock.console.pages.access.proving import FORM, proof_address
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import AnyRequest, refusal, viewer
from penstock.console.pages.forms import go, read_fields
from penstock.console.pages.rendering import Pages
from penstock.console.pages.sections import SYSTEM as SECTIONS
from penstock.console.parts import Console
from penstock.console.web.acting import records_itself
from penstock.console.web.scopes import Scope, needs
from penstock.events.envelope import utc_now

_AREA, _HERE = "System", "/accounts"
_METHODS = {
    "role": "PUT",
    "disable": "PUT",
    "enable": "PUT",
    "remove": "DELETE",
    "setup-link": "POST",
}


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """This page and its forms."""
    control = console.control

    def shown(
        request: AnyRequest,
        problem: str = "",
        status: int = 200,
        link: SetupLink | None = None,
        name: str = "",
    ) -> Response[str]:
        now, directory = utc_now(), control.directory
        open_sessions = [one for one in directory.sessions.values() if one.is_open(now)]
        own = console.settings.console.public_url.rstrip("/")
        page = pages.page(
            "accounts.html",
            _AREA,
            "Accounts",
            sections=SECTIONS,
            accounts=sorted(directory.accounts.values(), key=lambda one: one.name),
            sessions=sorted(open_sessions, key=lambda one: one.used_at, reverse=True),
            tokens=[one for one in directory.tokens.values() if one.state(now) == "valid"],
            roles=tuple(ROLES),
            now=now,
            refusal=refusal(console, viewer(request), Scope.ADMIN),
            problem=problem,
            link=f"{own}{link.path}" if link else "",
            link_until=link.expires_at if link else None,
            name=name,
        )
        page.status_code = status
        return page

    @get(_HERE, opt=needs(Scope.ADMIN), include_in_schema=False, media_type=MediaType.HTML)
    async def accounts(request: AnyRequest) -> Response[str]:
        return shown(request)

    async def sent(
        request: AnyRequest, method: str, path: str, body: object, name: str
    ) -> Response[str]:
        answer = await through_api.send(request, method, path, body)
        if proof := proof_address(answer, _HERE):
            return go(proof)
        if not answer.is_accepted:
            return shown(request, answer.problem, answer.status)
        if method != "POST":
            return go(_HERE)
        return shown(request, link=msgspec.json.decode(answer.body, type=SetupLink), name=name)

    @post(_HERE, opt=needs(Scope.ADMIN) | records_itself("page.act"), **FORM)
    async def add(request: AnyRequest) -> Response[str]:
        fields = await read_fields(request)
        name = fields.get("name", "").strip()
        body = {"name": name, "role": fields.get("role", "")}
        return await sent(request, "POST", "/accounts", body, name)

    @post(
        "/accounts/{name:str}/{act:str}",
        opt=needs(Scope.ADMIN) | records_itself("page.act"),
        **FORM,
    )
    async def change(request: AnyRequest, name: FromPath[str], act: FromPath[str]) -> Response[str]:
        if act not in _METHODS:
            return shown(request, "There is no such act.", 404)
        fields = await read_fields(request)
        bodies: dict[str, object] = {
            "role": {"role": fields.get("role", "")},
            "disable": {"disabled": True},
            "enable": {"disabled": False},
        }
        path = f"/accounts/{name}" + ("/setup-link" if act == "setup-link" else "")
        return await sent(request, _METHODS[act], path, bodies.get(act), name)

    return accounts, add, change
