"""What the console keeps: accounts, tokens, sessions and the audit log, on a stream of its own.

No key may remove these events: the stream ``CONSOLE`` refuses it. Entries of the audit log and
sessions are stored with a time to live, after which the broker drops them itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from penstock.events.envelope import Codec, Event, Instant, Int64

Role = Literal["viewer", "operator", "admin"]


class TokenEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "token"
    key_field: ClassVar[str] = "token_id"

    token_id: str


class TokenCreated(TokenEvent, frozen=True, kw_only=True, tag=True):
    """An API token was made; the token itself is stored nowhere.

    Attributes:
        label: its name: what it is for.
        owner: the account or person for whom it acts.
        digest: SHA-256 of the token, in hexadecimal.
        scopes: what it may do.
        pools: the pools that it may act on; none for any.
        queues: the queues that it may act on; none for any.
        expires_at: from when it is refused.
        maker: id of the token that made it, beyond which it does not reach; empty for none.
    """

    label: str
    digest: str
    scopes: tuple[str, ...]
    expires_at: Instant
    owner: str = ""
    pools: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    maker: str = ""


class TokenRevoked(TokenEvent, frozen=True, kw_only=True, tag=True):
    """The token is refused from now on, and those that were made with it."""


class TokenUsed(TokenEvent, frozen=True, kw_only=True, tag=True):
    """The token was used; stored every quarter of an hour at most.

    Attributes:
        address: that it was sent from.
    """

    address: str = ""


class AccountEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "account"
    key_field: ClassVar[str] = "account"

    account: str


class AccountAdded(AccountEvent, frozen=True, kw_only=True, tag=True):
    """A person may log in, once a password is set by a setup link."""

    role: Role


class AccountChanged(AccountEvent, frozen=True, kw_only=True, tag=True):
    """The account has another role from now on; its sessions, too."""

    role: Role


class AccountDisabled(AccountEvent, frozen=True, kw_only=True, tag=True):
    """The account refuses logins until it is enabled; its sessions, tokens and link end."""


class AccountEnabled(AccountEvent, frozen=True, kw_only=True, tag=True):
    """The person may log in again, with the same password; tokens that ended stay so."""


class AccountRemoved(AccountEvent, frozen=True, kw_only=True, tag=True):
    """The account and its sessions end."""


class SetupLinkMade(AccountEvent, frozen=True, kw_only=True, tag=True):
    """A link by which the account's password is set, once.

    Attributes:
        digest: SHA-256 of the link's secret, in hexadecimal.
        expires_at: from when it is refused.
    """

    digest: str
    expires_at: Instant


class PasswordSet(AccountEvent, frozen=True, kw_only=True, tag=True):
    """The account's password; its sessions and its setup link end.

    Attributes:
        password_hash: Argon2id, in the PHC string format.
    """

    password_hash: str


class SessionEvent(Event, frozen=True, kw_only=True):
    noun: ClassVar[str] = "session"
    key_field: ClassVar[str] = "session_id"

    session_id: str


class SessionStarted(SessionEvent, frozen=True, kw_only=True, tag=True):
    """Someone logged in.

    Attributes:
        digest: SHA-256 of the cookie's secret, in hexadecimal.
        account: whose session it is.
        method: how the person proved who it is: ``password`` or ``oidc``.
        role: for an account that another provider vouches for; None: that of the account.
        address: of the browser.
        agent: the browser, as it names itself.
        expires_at: from when it is refused, used or not.
    """

    digest: str
    account: str
    expires_at: Instant
    method: str = "password"
    role: Role | None = None
    address: str = ""
    agent: str = ""


class SessionUsed(SessionEvent, frozen=True, kw_only=True, tag=True):
    """The session was used; stored every ten minutes at most."""


class SessionEnded(SessionEvent, frozen=True, kw_only=True, tag=True):
    """The person logged out, or the session was revoked."""


class AuditRecorded(Event, frozen=True, kw_only=True, tag=True):
    """One entry of the audit log, which is a chain: each entry holds the hash of the one before.

    Attributes:
        block: of the entry's number; entries of a block share a subject.
        number: counts up from 1 without a gap.
        actor: who acted: an account, ``token:ID``, ``local``, or an operator's command.
        action: what was done, such as ``token.create``.
        target: what it was done to, such as ``job:ID``.
        result: ``begun``, ``done``, ``failed``, ``refused``, or ``shown`` for what was only read.
        address: that the request came from.
        request_id: also in the answer and in the console's log.
        of: number of the entry that the act began with; 0 where there is none.
        before: the values that were replaced.
        after: the new values.
        detail: why it was refused, how it failed.
        previous: hash of the entry before; empty for the first.
        hash: SHA-256 over this entry without it, in hexadecimal.
    """

    noun: ClassVar[str] = "audit"
    key_field: ClassVar[str] = "block"

    block: Int64
    number: Int64
    actor: str
    action: str
    result: str
    target: str = ""
    address: str = ""
    request_id: str = ""
    of: Int64 = 0
    before: Mapping[str, str] = {}
    after: Mapping[str, str] = {}
    detail: str = ""
    previous: str = ""
    hash: str = ""


CONSOLE_EVENTS = Codec(
    TokenCreated,
    TokenRevoked,
    TokenUsed,
    AccountAdded,
    AccountChanged,
    AccountDisabled,
    AccountEnabled,
    AccountRemoved,
    SetupLinkMade,
    PasswordSet,
    SessionStarted,
    SessionUsed,
    SessionEnded,
    AuditRecorded,
)
"""What the stream ``CONSOLE`` holds."""
