"""Logins with a password, setup links, and the ends of sessions; each stands in the audit log."""

from __future__ import annotations

import logging
from collections import deque
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from litestar import Request
from litestar.exceptions import TooManyRequestsException

from penstock.console.access.control import AccessControl
from penstock.console.access.recorder import address_of
from penstock.console.web.credentials import Principal
from penstock.events.console import Role, SessionEnded, SessionStarted
from penstock.events.envelope import new_id, utc_now
from penstock.operations.api_tokens import digest, new_secret

if TYPE_CHECKING:
    from penstock.console.access.oidc.flow import OidcLogins, Person

log = logging.getLogger("penstock.console")

LONGEST = timedelta(days=7)
"""A session ends after so long, used or not."""
_LONGEST_NAME, _LONGEST_AGENT = 64, 200
_MINUTE, _MOST_FAILURES_A_MINUTE = 60.0, 60


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a login came from."""

    address: str = ""
    agent: str = ""
    request_id: str = ""


def origin_of(request: Request[Any, Any, Any]) -> Origin:
    """Where a request came from."""
    return Origin(
        address=address_of(request.scope),
        agent=request.headers.get("user-agent", ""),
        request_id=str(request.state.get("request_id", "")),
    )


class Logins:
    """Opens and ends sessions.

    Args:
        control: accounts and sessions.
    """

    def __init__(self, control: AccessControl) -> None:
        self._control = control
        self._recorded: deque[float] = deque()

    async def login(self, name: str, password: str, origin: Origin) -> str | None:
        """The secret of a new session; None where name or password is wrong.

        Takes as long for a name that there is not, and says no more about it.

        Raises:
            TooManyRequestsException: too many tries failed of late.
        """
        name = name[:_LONGEST_NAME]
        if await self._is_right(name, password, "session.login", origin):
            return await self.open(name, "password", None, origin)
        return None

    async def open(
        self,
        account: str,
        method: str,
        role: Role | None,
        origin: Origin,
        longest: timedelta = LONGEST,
    ) -> str:
        """Opens a session for a person who has proved who it is; returns its secret.

        Each login has a secret of its own: one that was known before it is worth nothing.

        Args:
            account: the person's name.
            method: ``password`` or ``oidc``.
            role: for a person without an account here; None: that of the account.
            origin: of the request.
            longest: after which it ends, used or not.
        """
        secret = new_secret()
        session = SessionStarted(
            session_id=new_id(),
            digest=digest(secret),
            account=account,
            method=method,
            role=role,
            address=origin.address,
            agent=origin.agent[:_LONGEST_AGENT],
            expires_at=utc_now() + longest,
        )
        await self._record(account, "session.login", "done", origin, target=session.session_id)
        self._control.directory.forget_ended(utc_now())
        if self._control.read_only:
            self._control.directory.apply_here(session)
        else:
            seconds = int(LONGEST.total_seconds())
            sequence = await self._control.store.store(session, ttl_seconds=seconds)
            await self._control.directory.reached(sequence)
        return secret

    async def end(self, session_id: str, actor: str, origin: Origin) -> None:
        """Ends a session."""
        await self._record(actor, "session.logout", "done", origin, target=session_id)
        await self.revoke(session_id)

    async def open_vouched(self, person: Person, oidc: OidcLogins, origin: Origin) -> str:
        """Opens a session for a person for whom the provider vouches; returns its secret."""
        return await self.open(person.name, "oidc", person.role, origin, oidc.longest)

    async def end_former(self, principal: Principal | None) -> None:
        """Ends the session that a browser had before a login: its cookie is replaced."""
        if principal is not None and principal.kind == "session":
            await self.revoke(principal.id)

    async def revoke(self, session_id: str) -> None:
        """Ends a session without an entry of its own: the endpoint has one."""
        ended = SessionEnded(session_id=session_id)
        if self._control.read_only:
            self._control.directory.apply_here(ended)
            return
        seconds = int(LONGEST.total_seconds())
        sequence = await self._control.store.store(ended, ttl_seconds=seconds)
        await self._control.directory.reached(sequence)

    async def set_up(self, account: str, secret: str, password: str, origin: Origin) -> None:
        """Sets the password by a setup link.

        Raises:
            AccessRefused: the link has expired or was used.
            BadPassword: it is too short or too long.
            TooManyRequestsException: too many tries failed of late.
        """
        self._count_try(origin.address, account)
        password_hash = await self._control.passwords.hash(password)
        await self._record(account, "account.set_password", "begun", origin)
        await self._control.store.set_password(account, digest(secret), password_hash)
        await self._record(account, "account.set_password", "done", origin)
        self._control.limits.succeeded(origin.address, account)

    async def elevate(self, principal: Principal, password: str, origin: Origin) -> bool:
        """Lets a session do what is dangerous for a while; False where the password is wrong.

        Raises:
            TooManyRequestsException: too many tries failed of late.
        """
        if not await self._is_right(principal.name, password, "session.elevate", origin):
            return False
        await self.note_elevation(principal.id, principal.name, origin)
        return True

    async def note_elevation(self, session_id: str, name: str, origin: Origin) -> None:
        """Lets a session do what is dangerous: its person proved again who it is."""
        await self._record(name, "session.elevate", "done", origin, target=session_id)
        self._control.elevations.note(session_id, utc_now())

    async def _is_right(self, name: str, password: str, action: str, origin: Origin) -> bool:
        """Whether an account has this password; what is wrong is counted and recorded."""
        self._count_try(origin.address, name)
        account = self._control.directory.accounts.get(name)
        is_disabled = account is not None and account.disabled_at is not None
        stored = account.password_hash if account and not is_disabled else ""
        if not await self._control.passwords.is_right(stored, password):
            detail = "the account is disabled" if is_disabled else "wrong password"
            await self.record_refusal(name, action, detail, origin)
            return False
        self._control.limits.succeeded(origin.address, name)
        return True

    def _count_try(self, address: str, name: str) -> None:
        """Counts a try before it is compared: those that run at the same time count, too."""
        now = monotonic()
        if (wait := self._control.limits.wait_seconds(address, name, now)) > 0:
            raise TooManyRequestsException(
                f"too many logins failed; try again in {wait / 60:.0f} minutes",
                headers={"Retry-After": f"{wait:.0f}"},
            )
        self._control.limits.failed(address, name, now)

    async def record_refusal(self, name: str, action: str, detail: str, origin: Origin) -> None:
        """Records a failed login, so many in a minute that strangers do not fill the stream."""
        now = monotonic()
        while self._recorded and now - self._recorded[0] > _MINUTE:
            self._recorded.popleft()
        if len(self._recorded) >= _MOST_FAILURES_A_MINUTE:
            log.warning("a failed login from %s is not in the audit log: too many", origin.address)
            return
        self._recorded.append(now)
        await self._record(name, action, "refused", origin, detail=detail)

    async def _record(
        self,
        actor: str,
        action: str,
        result: str,
        origin: Origin,
        target: str = "",
        detail: str = "",
    ) -> None:
        await self._control.audit.record(
            actor,
            action,
            result,
            target=target,
            address=origin.address,
            request_id=origin.request_id,
            detail=detail,
        )
