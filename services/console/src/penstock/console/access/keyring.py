"""Finds out who sent a request: an API token, the cookie of a session, else what is configured."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Mapping
from datetime import timedelta

import msgspec

from penstock.bus.protocol import BusError
from penstock.console.access.control import AccessControl
from penstock.console.access.roles import READ_ONLY, ROLES, scopes_of
from penstock.console.web import cookies
from penstock.console.web.credentials import Authenticator, Local, Principal
from penstock.console.web.scopes import Scope
from penstock.events.console import SessionUsed, TokenUsed
from penstock.events.envelope import utc_now
from penstock.operations.api_tokens import digest, is_token
from penstock.operations.console_directory import IDLE, Session, Token

log = logging.getLogger("penstock.console")

_TOKEN_USE_EVERY = timedelta(minutes=15)
_SESSION_USE_EVERY = timedelta(minutes=10)
_TOKEN_USE_SECONDS = 100 * 86_400


class Keyring:
    """Knows the tokens and sessions of the console.

    Args:
        control: accounts, tokens and sessions.
        others: what else lets callers in; asked for requests without a token or session of the
            console.
    """

    def __init__(self, control: AccessControl, others: Authenticator) -> None:
        self._control, self._others = control, others
        self._storing: set[asyncio.Task[None]] = set()

    def principal(self, headers: Mapping[str, str]) -> Principal | None:
        """The caller; None where the request carries no valid credentials."""
        principal = self._caller(headers)
        if principal is None or not self._control.read_only:
            return principal
        return msgspec.structs.replace(principal, scopes=principal.scopes & READ_ONLY)

    def _caller(self, headers: Mapping[str, str]) -> Principal | None:
        if authorization := headers.get("authorization", ""):
            kind, _, text = authorization.partition(" ")
            token = self._token(text.strip()) if kind.lower() == "bearer" else None
            if token is not None:
                return self._bearer(token)
            # a token that is wrong is no reason to let its sender in without one
            return None if isinstance(self._others, Local) else self._others.principal(headers)
        session = self._session(headers.get("cookie", ""))
        if session is not None and (role := self._control.directory.role(session)):
            return Principal(
                name=session.account,
                account=session.account,
                scopes=ROLES[role],
                kind="session",
                id=session.id,
                role=role,
                method=session.method,
                is_elevated=self._control.elevations.is_elevated(session, utc_now()),
            )
        return self._others.principal(headers)

    def note_use(self, principal: Principal, address: str) -> None:
        """Stores, now and then, that a token or session is in use."""
        if self._control.read_only:
            return
        directory, now = self._control.directory, utc_now()
        token = directory.tokens.get(principal.id) if principal.kind == "token" else None
        session = directory.sessions.get(principal.id) if principal.kind == "session" else None
        if token and (token.used_at is None or now - token.used_at > _TOKEN_USE_EVERY):
            self._store(TokenUsed(token_id=token.id, address=address), _TOKEN_USE_SECONDS)
        elif session and now - session.used_at > _SESSION_USE_EVERY:
            self._store(SessionUsed(session_id=session.id), int(IDLE.total_seconds()))

    def _store(self, event: TokenUsed | SessionUsed, ttl_seconds: int) -> None:
        async def store() -> None:
            try:
                await self._control.store.store(event, ttl_seconds=ttl_seconds)
            except BusError as error:
                log.warning("the use of a token or session was not stored: %s", error)

        self._control.directory.apply_here(event)
        task = asyncio.get_running_loop().create_task(store())
        self._storing.add(task)
        task.add_done_callback(self._storing.discard)

    def _token(self, text: str) -> Token | None:
        if not is_token(text):
            return None
        computed = digest(text)
        token = self._control.directory.token(computed)
        if token is None or not hmac.compare_digest(token.digest, computed):
            return None
        return token if token.state(utc_now()) == "valid" else None

    def _session(self, header: str) -> Session | None:
        if not (secret := cookies.only(header, self._control.cookie_name)):
            return None
        computed = digest(secret)
        session = self._control.directory.session(computed)
        if session is None or not hmac.compare_digest(session.digest, computed):
            return None
        if session.method == "oidc" and self._control.oidc is None:
            return None  # logins by a provider were switched off since
        return session if session.is_open(utc_now()) else None

    def _bearer(self, token: Token) -> Principal:
        """A person's token never may more than the person may now."""
        scopes = scopes_of(token.scopes)
        if token.pools or token.queues:
            scopes -= {Scope.ADMIN}
        owner = self._control.directory.accounts.get(token.owner)
        if owner is not None:
            scopes &= ROLES[owner.role]
        return Principal(
            name=f"token:{token.name}#{token.id[-12:]}",
            scopes=scopes,
            kind="token",
            id=token.id,
            account=token.owner if owner or token.owner.startswith("oidc:") else "",
            pools=frozenset(token.pools),
            queues=frozenset(token.queues),
        )
