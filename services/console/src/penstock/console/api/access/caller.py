"""The caller: who it is, its sessions, and what roles allow."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Request, post
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from penstock.console.access.logins import Logins, origin_of
from penstock.console.access.roles import ROLES
from penstock.console.api.endpoint import Routes, read
from penstock.console.parts import Console
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.acting import act, acting, records_itself
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope, needs
from penstock.events.envelope import utc_now
from penstock.operations.console_directory import Session

AnyRequest = Request[Any, Any, Any]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The caller.

    Attributes:
        kind: ``local``, ``token`` or ``session``.
        role: of a person who is logged in; empty for others.
        method: how that person logged in: ``password`` or ``oidc``.
        is_elevated: that person proved within the last quarter of an hour who it is.
    """

    name: str
    kind: str
    role: str
    scopes: list[str]
    pools: list[str]
    queues: list[str]
    method: str = ""
    is_elevated: bool = False


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A further proof of who the caller is."""

    password: Annotated[str, Meta(max_length=256)]


class SessionItem(msgspec.Struct, frozen=True, kw_only=True):
    """A browser in which the caller is logged in; ``is_current`` for this one."""

    id: str
    started_at: datetime
    used_at: datetime
    expires_at: datetime
    method: str
    address: str
    agent: str
    is_current: bool


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    control = console.control
    logins = Logins(control)

    @read("/me")
    async def me(request: AnyRequest) -> Me:
        """The caller, and what it may do."""
        caller = caller_of(request)
        return Me(
            name=caller.name,
            kind=caller.kind,
            role=caller.role,
            scopes=sorted(caller.scopes),
            pools=sorted(caller.pools),
            queues=sorted(caller.queues),
            method=caller.method,
            is_elevated=caller.is_elevated,
        )

    @post(
        "/session/elevate",
        opt=needs(Scope.READ) | records_itself("session.elevate"),
        status_code=204,
    )
    async def elevate(request: AnyRequest, data: JSONBody[Proof]) -> None:
        """Lets the caller's session do what is dangerous for 15 minutes: accounts and tokens."""
        caller = caller_of(request)
        if caller.method != "password":
            raise PermissionDeniedException(
                "only a session that began with a password has one to prove; the page /elevate "
                "leads to the login provider"
            )
        if not await logins.elevate(caller, data.password, origin_of(request)):
            raise PermissionDeniedException("the password is wrong")

    @read("/me/sessions")
    async def my_sessions(request: AnyRequest) -> list[SessionItem]:
        """The browsers in which the caller is logged in."""
        caller, now = caller_of(request), utc_now()
        return [_session_item(one, caller) for one in _sessions_of(console, caller, now)]

    @act("DELETE", "/me/sessions/{session_id:str}", Scope.READ, "session.end", status_code=204)
    async def end_session(request: AnyRequest, session_id: FromPath[str]) -> None:
        """Logs the caller out of one browser."""
        caller = caller_of(request)
        if session_id not in {one.id for one in _sessions_of(console, caller, utc_now())}:
            raise NotFoundException("the caller has no such session")
        acting(request).target = f"session:{session_id}"
        await logins.revoke(session_id)

    @read("/roles")
    async def roles() -> dict[str, list[str]]:
        """Roles, and the scopes of each."""
        return {name: sorted(scopes) for name, scopes in ROLES.items()}

    return me, elevate, my_sessions, end_session, roles


def caller_of(request: AnyRequest) -> Principal:
    """Who sent a request."""
    caller: Principal = request.scope["state"][PRINCIPAL]
    return caller


def _sessions_of(console: Console, caller: Principal, now: datetime) -> list[Session]:
    if caller.kind != "session":
        return []
    sessions = console.control.directory.sessions.values()
    return [one for one in sessions if one.account == caller.name and one.is_open(now)]


def _session_item(session: Session, caller: Principal) -> SessionItem:
    return SessionItem(
        id=session.id,
        started_at=session.started_at,
        used_at=session.used_at,
        expires_at=session.expires_at,
        method=session.method,
        address=session.address,
        agent=session.agent,
        is_current=session.id == caller.id,
    )
