"""API tokens: those of the caller, new ones, and their end."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from litestar.exceptions import (
    NotFoundException,
    PermissionDeniedException,
    ValidationException,
)
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from penstock.console.api.access.caller import AnyRequest, caller_of
from penstock.console.api.endpoint import Routes, read
from penstock.console.parts import Console
from penstock.console.web.acting import act, acting
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.envelope import utc_now
from penstock.operations.console_access import (
    ADMIN,
    DEFAULT_DAYS,
    LIMITED_ADMIN,
    LONGEST_DAYS,
)
from penstock.operations.console_directory import VOUCHED, Token

ScopeName = Literal["read", "payload", "jobs", "queues", "schedules", "alerts", "admin"]
_MOST_NAMES = 100


class TokenItem(msgspec.Struct, frozen=True, kw_only=True):
    """An API token, without the token; ``state`` is ``valid``, ``expired`` or ``revoked``."""

    id: str
    name: str
    owner: str
    scopes: list[str]
    pools: list[str]
    queues: list[str]
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None
    used_from: str
    state: str


class NewToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to be made.

    Attributes:
        pools: that it may act on; none for any.
        queues: that it may act on; none for any.
    """

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    scopes: Annotated[list[ScopeName], Meta(min_length=1, max_length=10)]
    days: Annotated[int, Meta(ge=1, le=LONGEST_DAYS)] = DEFAULT_DAYS
    pools: Annotated[list[str], Meta(max_length=_MOST_NAMES)] = []
    queues: Annotated[list[str], Meta(max_length=_MOST_NAMES)] = []


class MadeToken(msgspec.Struct, frozen=True, kw_only=True):
    """A new token, which is shown this once."""

    id: str
    token: str
    expires_at: datetime


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    control = console.control

    @read("/tokens")
    async def tokens(request: AnyRequest) -> list[TokenItem]:
        """The caller's tokens; those of all for an administrator."""
        return token_items(console, caller_of(request))

    @act("POST", "/tokens", Scope.READ, "token.create", is_dangerous=True, shows_secret=True)
    async def create_token(request: AnyRequest, data: JSONBody[NewToken]) -> MadeToken:
        """Makes a token with scopes that the caller has itself; it is shown this once.

        One that a token makes acts for the same person, and ends with that token.
        """
        caller = caller_of(request)
        _check_grants(caller, data)
        acting(request).target = f"token:{data.name}"
        maker = control.directory.tokens.get(caller.id) if caller.kind == "token" else None
        token, event = await control.store.create_token(
            data.name,
            data.scopes,
            owner=maker.owner if maker else caller.name,
            days=data.days,
            pools=data.pools,
            queues=data.queues,
            maker=maker,
        )
        acting(request).after = {
            "id": event.token_id,
            "scopes": " ".join(event.scopes),
            "pools": " ".join(event.pools),
            "queues": " ".join(event.queues),
            "expires_at": event.expires_at.isoformat(),
        }
        await control.directory.until(lambda: event.token_id in control.directory.tokens)
        return MadeToken(id=event.token_id, token=token, expires_at=event.expires_at)

    @act("DELETE", "/tokens/{token_id:str}", Scope.READ, "token.revoke", status_code=204)
    async def revoke_token(request: AnyRequest, token_id: FromPath[str]) -> None:
        """Revokes a token, from now on."""
        caller, token = caller_of(request), control.directory.tokens.get(token_id)
        if token is None or not _may_see(caller, token) or caller.kind == "local":
            raise NotFoundException("there is no such token")
        acting(request).target = f"token:{token_id}"
        acting(request).before = {"state": token.state(utc_now()), "name": token.name}
        await control.store.revoke_token(token_id)
        await control.directory.until(lambda: _is_revoked(console, token_id))

    return tokens, create_token, revoke_token


def token_items(console: Console, caller: Principal) -> list[TokenItem]:
    """The tokens that a caller sees, newest first."""
    tokens, now = console.control.directory.tokens.values(), utc_now()
    visible = [one for one in tokens if _may_see(caller, one)]
    return [_token_item(one, now) for one in reversed(visible)]


def _check_grants(caller: Principal, wanted: NewToken) -> None:
    """Raises PermissionDeniedException: the caller may not make this token."""
    is_admin = Scope.ADMIN in caller.scopes
    if caller.is_limited or not (caller.kind == "session" or is_admin):
        raise PermissionDeniedException(
            "tokens are made by people who are logged in, and by unlimited tokens with the scope "
            "admin; or by 'penstock api token create'"
        )
    if caller.method == "oidc" and wanted.days > VOUCHED.days:
        raise PermissionDeniedException(
            f"found {wanted.days} days, expected {VOUCHED.days} at most: the console does not "
            "learn when the login provider locks you out; an account of the console, or 'penstock "
            "api token create', may make it for longer"
        )
    if ADMIN in wanted.scopes and (wanted.pools or wanted.queues):
        raise ValidationException(LIMITED_ADMIN)
    if missing := sorted(set(wanted.scopes) - {str(scope) for scope in caller.scopes}):
        raise PermissionDeniedException(f"{caller.name} has no scope {', '.join(missing)} to give")


def _may_see(caller: Principal, token: Token) -> bool:
    is_own = token.maker == caller.id if caller.kind == "token" else token.owner == caller.name
    return Scope.ADMIN in caller.scopes or is_own


def _is_revoked(console: Console, token_id: str) -> bool:
    return console.control.directory.tokens[token_id].revoked_at is not None


def _token_item(token: Token, now: datetime) -> TokenItem:
    return TokenItem(
        id=token.id,
        name=token.name,
        owner=token.owner,
        scopes=list(token.scopes),
        pools=list(token.pools),
        queues=list(token.queues),
        created_at=token.created_at,
        expires_at=token.expires_at,
        used_at=token.used_at,
        used_from=token.used_from,
        state=token.state(now),
    )
