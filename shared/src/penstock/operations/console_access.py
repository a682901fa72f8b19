"""Makes and revokes API tokens and accounts of the console: for the command and the console."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from penstock.bus.protocol import Bus, BusError, Expect, Outgoing, Stored, WrongSequence
from penstock.events.console import (
    CONSOLE_EVENTS,
    AccountAdded,
    AccountChanged,
    AccountDisabled,
    AccountEnabled,
    AccountEvent,
    AccountRemoved,
    PasswordSet,
    Role,
    SetupLinkMade,
    TokenCreated,
    TokenRevoked,
)
from penstock.events.envelope import (
    Event,
    MalformedEvent,
    UnknownEvent,
    encode,
    new_id,
    utc_now,
)
from penstock.events.subjects import Subjects, check_name
from penstock.operations.api_tokens import digest, new_secret, new_token
from penstock.operations.console_directory import Account, Directory, Token

DEFAULT_DAYS = 90
LONGEST_DAYS = 3_650
SETUP_HOURS = 24
ADMIN = "admin"
LIMITED_ADMIN = (
    "a token with the scope admin cannot be limited to pools or queues: it acts on accounts and on "
    "all tokens"
)
_LONGEST_NAME = 100
_PART = 1_000
_RESERVED = frozenset({"cli", "console", "local", "token", "unknown"})
"""What the audit log calls callers without an account."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class AccessRefused(ValueError):
    """No such token or account, one that exists already, or a value that is not allowed."""


class ConsoleAccess:
    """Tokens and accounts.

    Args:
        bus: a connection that may store ``console.token.*.*`` and ``console.account.*.*``.
        subjects: of the installation.
        source: what the events name as their origin.
    """

    def __init__(self, bus: Bus, subjects: Subjects, source: str) -> None:
        self._bus, self._subjects, self._source = bus, subjects, source

    async def directory(self) -> Directory:
        """All tokens and accounts, read from the stream."""
        messages = [*await self._history("token"), *await self._history("account")]
        # the end of an account ends the tokens that it had then, not those of later
        return _folded(sorted(messages, key=lambda message: message.sequence))

    async def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        owner: str,
        days: int = DEFAULT_DAYS,
        pools: Sequence[str] = (),
        queues: Sequence[str] = (),
        maker: Token | None = None,
    ) -> tuple[str, TokenCreated]:
        """A new token, which is shown once and stored nowhere, and the event that was stored.

        Args:
            name: what it is for.
            scopes: what it may do.
            owner: the account or person for whom it acts.
            days: until it expires; with a maker no later than that.
            pools: that it may act on; none for any.
            queues: that it may act on, whose payloads it may read; none for any.
            maker: the token that makes it.

        Raises:
            AccessRefused: a name, scope or number of days that is not allowed, or limits of an
                administrator.
            BadName: no name of a pool or queue.
        """
        if not scopes:
            raise AccessRefused("a token needs at least one scope")
        if not 1 <= days <= LONGEST_DAYS:
            raise AccessRefused(f"found {days} days, expected 1 to {LONGEST_DAYS}")
        if ADMIN in scopes and (pools or queues):
            raise AccessRefused(LIMITED_ADMIN)
        token = new_token()
        now = utc_now()
        expires_at = now + timedelta(days=days)
        event = TokenCreated(
            source=self._source,
            at=now,
            token_id=new_id(),
            label=_name(name),
            owner=owner,
            digest=digest(token),
            scopes=tuple(dict.fromkeys(scopes)),
            pools=tuple(check_name("pool", pool) for pool in pools),
            queues=tuple(check_name("queue", queue) for queue in queues),
            expires_at=min(expires_at, maker.expires_at) if maker else expires_at,
            maker=maker.id if maker else "",
        )
        await self.store(event, Expect(0))
        return token, event

    async def revoke_token(self, token_id: str) -> Token:
        """Ends a token; one that is revoked already stays so.

        Raises:
            AccessRefused: there is no such token, or several begin so.
        """
        tokens = (await self.directory()).tokens
        matching = [token for token in tokens.values() if token.id == token_id]
        matching = matching or [token for token in tokens.values() if token.id.startswith(token_id)]
        if len(matching) != 1:
            what = "is no token" if not matching else f"is the beginning of {len(matching)} tokens"
            raise AccessRefused(f"{token_id[:80]!r} {what}; 'penstock api token ls' shows them")
        if matching[0].revoked_at is None:
            await self.store(TokenRevoked(source=self._source, token_id=matching[0].id))
        return matching[0]

    async def add_account(self, name: str, role: Role) -> None:
        """Adds an account without a password.

        Raises:
            AccessRefused: there is one, or the name is not a person's.
            BadName: the name cannot stand in a subject.
        """
        check_name("account", name)
        if name.lower() in _RESERVED:
            raise AccessRefused(f"{name!r} is no name of a person: it stands in the audit log")
        await self._change(name, AccountAdded(source=self._source, account=name, role=role), False)

    async def change_role(self, name: str, role: Role) -> None:
        """Gives the account another role.

        Raises:
            AccessRefused: there is no such account, or no other administrator can log in.
        """
        await self._change_admin(
            name, AccountChanged(source=self._source, account=name, role=role), role == "admin"
        )

    async def disable_account(self, name: str) -> None:
        """Has the account refuse logins, and ends its sessions and tokens.

        Raises:
            AccessRefused: there is no such account, or no other administrator can log in.
        """
        await self._change_admin(name, AccountDisabled(source=self._source, account=name), False)

    async def enable_account(self, name: str) -> None:
        """Lets the person log in again. Raises AccessRefused: there is no such account."""
        await self._change(name, AccountEnabled(source=self._source, account=name))

    async def remove_account(self, name: str, *, may_be_last: bool = False) -> None:
        """Removes the account, and its sessions.

        Args:
            name: of the account.
            may_be_last: also removes the last administrator who can log in.

        Raises:
            AccessRefused: there is no such account, or no other administrator can log in.
        """
        event = AccountRemoved(source=self._source, account=name)
        if may_be_last:
            await self._change(name, event)
        else:
            await self._change_admin(name, event, False)

    async def make_setup_link(self, name: str) -> tuple[str, datetime]:
        """The secret of a link by which the password is set, once, and until when.

        A link that was made before works no more.

        Raises:
            AccessRefused: there is no such account, or it is disabled.
        """
        account, _ = await self._account(name)
        if account is not None and account.disabled_at is not None:
            raise AccessRefused(f"the account {name!r} is disabled; enable it first")
        secret = new_secret()
        expires_at = utc_now() + timedelta(hours=SETUP_HOURS)
        made = SetupLinkMade(
            source=self._source, account=name, digest=digest(secret), expires_at=expires_at
        )
        await self._change(name, made)
        return secret, expires_at

    async def set_password(self, name: str, setup_digest: str, password_hash: str) -> None:
        """Sets the password by an open setup link, which works once.

        Raises:
            AccessRefused: the link is not open: it expired, or was used.
        """
        account, sequence = await self._account(name)
        is_open = (
            account is not None
            and account.setup_digest == setup_digest
            and account.setup_expires_at is not None
            and utc_now() < account.setup_expires_at
        )
        if not is_open or not setup_digest:
            raise AccessRefused("this link has expired or was used; ask for a new one")
        event = PasswordSet(source=self._source, account=name, password_hash=password_hash)
        await self.store(event, Expect(sequence, self._subjects.console("account", name)))

    async def store(self, event: Event, expect: Expect | None = None, ttl_seconds: int = 0) -> int:
        """Stores one of the console's events.

        Args:
            ttl_seconds: after which the broker drops it; 0 for never.
        """
        headers = {"Nats-TTL": f"{ttl_seconds}s"} if ttl_seconds else {}
        return await self._bus.append(
            Outgoing(self._subjects.console_event(event), encode(event), headers, expect)
        )

    async def _change(self, name: str, event: AccountEvent, must_exist: bool = True) -> None:
        account, sequence = await self._account(name)
        if must_exist and account is None:
            raise AccessRefused(f"there is no account {name[:80]!r}")
        if not must_exist and account is not None:
            raise AccessRefused(f"there is an account {name!r} already")
        await self._store_change(event, Expect(sequence, self._subjects.console("account", name)))

    async def _change_admin(self, name: str, event: AccountEvent, stays_admin: bool) -> None:
        """Changes an account unless no administrator could log in then.

        Of two changes at the same time, to whichever accounts, the broker takes one.
        """
        check_name("account", name)
        messages = await self._history("account")
        accounts = _folded(messages).accounts
        if (account := accounts.get(name)) is None:
            raise AccessRefused(f"there is no account {name[:80]!r}")
        admins = {one.name for one in accounts.values() if one.is_admin}
        if account.is_admin and not stays_admin and admins == {name}:
            raise AccessRefused(
                f"{name!r} is the only administrator who can log in: make another one first "
                "('penstock api account add NAME --role admin', and set its password)"
            )
        last = messages[-1].sequence
        await self._store_change(event, Expect(last, self._subjects.console("account")))

    async def _store_change(self, event: AccountEvent, expect: Expect) -> None:
        """Raises AccessRefused: another change came first."""
        try:
            await self.store(event, expect)
        except WrongSequence:
            raise AccessRefused(
                f"accounts were changed at the same time, and {event.account!r} is left as it is: "
                "look at the accounts, and try again"
            ) from None

    async def _history(self, noun: str, key: str = "*") -> list[Stored]:
        """All events of a kind, or of one account or token."""
        stream, pattern = self._subjects.console_stream, self._subjects.console(noun, key)
        messages: list[Stored] = []
        while part := await self._bus.history(
            stream, pattern, _PART, messages[-1].sequence + 1 if messages else 1
        ):
            messages += part
        return messages

    async def _account(self, name: str) -> tuple[Account | None, int]:
        """The account, and the sequence of its last event."""
        check_name("account", name)
        stream, pattern = self._subjects.console_stream, self._subjects.console("account", name)
        last = await self._bus.last(stream, pattern)
        if last is None:
            return None, 0
        messages = await self._history("account", name)
        if not messages or messages[-1].sequence < last.sequence:
            raise BusError(f"the history of account {name} is not there yet; try again")
        return _folded(messages).accounts.get(name), messages[-1].sequence


def _folded(messages: Iterable[Stored]) -> Directory:
    directory = Directory()
    for message in messages:
        if (event := readable(message.body)) is not None:
            directory.apply(event)
    return directory


def readable(body: bytes) -> Event | None:
    """The event in ``body``; None for one of a later version, or for what is none."""
    try:
        event = CONSOLE_EVENTS.decode(body)
    except MalformedEvent:
        return None
    return None if isinstance(event, UnknownEvent) else event


def _name(name: str) -> str:
    name = name.strip()
    if not 1 <= len(name) <= _LONGEST_NAME or _CONTROL.search(name):
        raise AccessRefused(f"a token's name has 1 to {_LONGEST_NAME} characters, in one line")
    return name
