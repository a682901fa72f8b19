"""Accounts, tokens and sessions of the console, as they follow from its events. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

import msgspec

from penstock.events.console import (
    AccountAdded,
    AccountChanged,
    AccountDisabled,
    AccountEnabled,
    AccountEvent,
    AccountRemoved,
    PasswordSet,
    Role,
    SessionEnded,
    SessionEvent,
    SessionStarted,
    SessionUsed,
    SetupLinkMade,
    TokenCreated,
    TokenEvent,
    TokenRevoked,
    TokenUsed,
)
from penstock.events.envelope import Event, Instant

IDLE = timedelta(hours=12)
"""A session that was not used for so long has ended."""
VOUCHED = timedelta(days=7)
"""A token of a person for whom a login provider vouches ends after so long: the console does not
learn when the provider locks the person out."""
_VOUCHED_PREFIX = "oidc:"
_FORMER_OWNER = re.compile(r"token:(.*)#([0-9a-f-]{12})", re.DOTALL)
"""What tokens that were made with tokens named as their owner."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """An API token.

    Attributes:
        id: by which it is revoked.
        owner: the account, or the person, for whom it acts, also where a token made it.
        digest: SHA-256 of it, in hexadecimal.
        pools: that it may act on; none for any.
        queues: that it may act on; none for any.
        revoked_at: None while it is not.
        used_at: when it was last used, within a quarter of an hour; None: not yet.
        used_from: the address that it was last used from.
        maker: id of the token that it was made with, beyond which it does not reach; empty for
            none.
    """

    id: str
    name: str
    owner: str
    digest: str
    scopes: tuple[str, ...]
    created_at: Instant
    expires_at: Instant
    pools: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    revoked_at: Instant | None = None
    used_at: Instant | None = None
    used_from: str = ""
    maker: str = ""

    def state(self, now: datetime) -> str:
        """``valid``, ``expired`` or ``revoked``."""
        if self.revoked_at is not None:
            return "revoked"
        return "valid" if now < self.expires_at else "expired"


class Account(msgspec.Struct, frozen=True, kw_only=True):
    """A person who may log in.

    Attributes:
        password_hash: empty until the password was set.
        setup_digest: of the setup link that is open; empty for none.
        setup_expires_at: until when that link works.
        disabled_at: since when it refuses logins; None: it is enabled.
    """

    name: str
    role: Role
    created_at: Instant
    password_hash: str = ""
    setup_digest: str = ""
    setup_expires_at: Instant | None = None
    disabled_at: Instant | None = None

    @property
    def is_admin(self) -> bool:
        """Whether a person who decides about accounts can log in with it."""
        return self.role == "admin" and bool(self.password_hash) and self.disabled_at is None


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """A browser in which a person is logged in.

    Attributes:
        digest: SHA-256 of the cookie's secret, in hexadecimal.
        role: of a person for whom another provider vouches; None: that of the account.
        used_at: when it was last used, within ten minutes.
    """

    id: str
    digest: str
    account: str
    method: str
    started_at: Instant
    used_at: Instant
    expires_at: Instant
    role: Role | None = None
    address: str = ""
    agent: str = ""

    def is_open(self, now: datetime) -> bool:
        """Whether it is neither past its end nor unused for too long."""
        return now < self.expires_at and now < self.used_at + IDLE


class Directory:
    """Folds events of the stream ``CONSOLE``; what it does not know changes nothing."""

    def __init__(self) -> None:
        self.tokens: dict[str, Token] = {}
        self.accounts: dict[str, Account] = {}
        self.sessions: dict[str, Session] = {}
        self._tokens_by_digest: dict[str, str] = {}
        self._sessions_by_digest: dict[str, str] = {}
        self._removed: set[str] = set()

    def apply(self, event: Event) -> None:
        """Takes an event, in the order of the stream."""
        if isinstance(event, TokenEvent):
            self._apply_token(event)
        elif isinstance(event, AccountEvent):
            self._apply_account(event)
        elif isinstance(event, SessionEvent):
            self._apply_session(event)

    def token(self, digest: str) -> Token | None:
        """The token with this digest, whatever its state."""
        return self.tokens.get(self._tokens_by_digest.get(digest, ""))

    def session(self, digest: str) -> Session | None:
        """The session with this digest, open or not."""
        return self.sessions.get(self._sessions_by_digest.get(digest, ""))

    def role(self, session: Session) -> Role | None:
        """The role of a session now; None: its account is gone, or disabled."""
        if session.role is not None:
            return session.role
        account = self.accounts.get(session.account)
        return account.role if account and account.disabled_at is None else None

    def forget_ended(self, now: datetime) -> None:
        """Drops sessions that have ended by themselves."""
        for session in [one for one in self.sessions.values() if not one.is_open(now)]:
            self._end(session.id)

    def _apply_token(self, event: TokenEvent) -> None:
        current = self.tokens.get(event.token_id)
        if isinstance(event, TokenCreated) and current is None:
            self.tokens[event.token_id] = self._made(event)
            self._tokens_by_digest[event.digest] = event.token_id
        elif current is None:
            return
        elif isinstance(event, TokenRevoked):
            self._revoke(current, event.at)
        elif isinstance(event, TokenUsed):
            self.tokens[current.id] = msgspec.structs.replace(
                current, used_at=event.at, used_from=event.address
            )

    def _made(self, event: TokenCreated) -> Token:
        """A new token, which reaches no further than its maker and its owner."""
        token = Token(
            id=event.token_id,
            name=event.label,
            owner=event.owner,
            digest=event.digest,
            scopes=event.scopes,
            pools=event.pools,
            queues=event.queues,
            created_at=event.at,
            expires_at=event.expires_at,
            revoked_at=None if self._may_own(event.owner) else event.at,
        )
        if event.owner.startswith(_VOUCHED_PREFIX):
            longest = min(token.expires_at, token.created_at + VOUCHED)
            token = msgspec.structs.replace(token, expires_at=longest)
        former = None if event.maker else _FORMER_OWNER.fullmatch(event.owner)
        if not event.maker and former is None:
            return token
        maker = self._former_maker(*former.groups()) if former else self.tokens.get(event.maker)
        if maker is None:
            return msgspec.structs.replace(token, revoked_at=event.at)
        limiting = maker if maker.pools or maker.queues else token
        return msgspec.structs.replace(
            token,
            owner=maker.owner,
            maker=maker.id,
            scopes=tuple(scope for scope in token.scopes if scope in maker.scopes),
            pools=limiting.pools,
            queues=limiting.queues,
            expires_at=min(token.expires_at, maker.expires_at),
            revoked_at=maker.revoked_at or token.revoked_at,
        )

    def _may_own(self, owner: str) -> bool:
        """Whether tokens of ``owner`` are valid: it is no account that is removed or disabled."""
        account = self.accounts.get(owner)
        return owner not in self._removed and (account is None or account.disabled_at is None)

    def _former_maker(self, name: str, id_end: str) -> Token | None:
        """The maker that an owner of former versions names; None: several, or none."""
        tokens = self.tokens.values()
        matching = [one for one in tokens if one.name == name and one.id.endswith(id_end)]
        return matching[0] if len(matching) == 1 else None

    def _revoke(self, token: Token, at: datetime) -> None:
        """Ends a token, and those that were made with it."""
        self.tokens[token.id] = msgspec.structs.replace(token, revoked_at=token.revoked_at or at)
        for child in [one for one in self.tokens.values() if one.maker == token.id]:
            if child.revoked_at is None:
                self._revoke(child, at)

    def _apply_account(self, event: AccountEvent) -> None:
        current = self.accounts.get(event.account)
        if isinstance(event, AccountAdded):
            if current is None:
                added = Account(name=event.account, role=event.role, created_at=event.at)
                self.accounts[event.account] = added
                self._removed.discard(event.account)
        elif current is not None:
            self._change_account(current, event)

    def _change_account(self, current: Account, event: AccountEvent) -> None:
        if isinstance(event, AccountRemoved):
            del self.accounts[current.name]
            self._end_access(current.name, event.at)
            self._removed.add(current.name)
        elif isinstance(event, AccountDisabled):
            self.accounts[current.name] = msgspec.structs.replace(
                current, disabled_at=event.at, setup_digest="", setup_expires_at=None
            )
            self._end_access(current.name, event.at)
        elif isinstance(event, AccountEnabled):
            self.accounts[current.name] = msgspec.structs.replace(current, disabled_at=None)
        elif isinstance(event, AccountChanged):
            self.accounts[current.name] = msgspec.structs.replace(current, role=event.role)
        elif isinstance(event, SetupLinkMade):
            self.accounts[current.name] = msgspec.structs.replace(
                current, setup_digest=event.digest, setup_expires_at=event.expires_at
            )
        elif isinstance(event, PasswordSet):
            self.accounts[current.name] = msgspec.structs.replace(
                current, password_hash=event.password_hash, setup_digest="", setup_expires_at=None
            )
            self._end_all(current.name)

    def _apply_session(self, event: SessionEvent) -> None:
        current = self.sessions.get(event.session_id)
        if isinstance(event, SessionStarted) and current is None:
            account = self.accounts.get(event.account)
            if event.role is None and (account is None or account.disabled_at is not None):
                return  # the account ended while the login was under way
            self.sessions[event.session_id] = Session(
                id=event.session_id,
                digest=event.digest,
                account=event.account,
                method=event.method,
                role=event.role,
                address=event.address,
                agent=event.agent,
                started_at=event.at,
                used_at=event.at,
                expires_at=event.expires_at,
            )
            self._sessions_by_digest[event.digest] = event.session_id
        elif current is not None and isinstance(event, SessionUsed):
            self.sessions[current.id] = msgspec.structs.replace(current, used_at=event.at)
        elif current is not None and isinstance(event, SessionEnded):
            self._end(current.id)

    def _end_access(self, account: str, at: datetime) -> None:
        """Ends the sessions and the tokens of an account."""
        self._end_all(account)
        for token in [one for one in self.tokens.values() if one.owner == account]:
            self._revoke(token, at)

    def _end_all(self, account: str) -> None:
        for session in [one for one in self.sessions.values() if one.account == account]:
            if session.role is None:
                self._end(session.id)

    def _end(self, session_id: str) -> None:
        session = self.sessions.pop(session_id)
        self._sessions_by_digest.pop(session.digest, None)
