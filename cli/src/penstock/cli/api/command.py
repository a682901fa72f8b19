"""`penstock api`: tokens and accounts of the console, and its audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar, cast

import click
import msgspec

from penstock.bus.protocol import Bus
from penstock.cli.api.muting import mute, muted, unmute
from penstock.cli.api.recorded import access, acted, audit_log
from penstock.cli.api.rows import rows
from penstock.cli.command import Group
from penstock.cli.errors import Failed, Refused
from penstock.cli.output import Column, note, write_json, write_line, write_rows
from penstock.cli.scaling.giver import giver
from penstock.cli.session import Session
from penstock.config import Settings
from penstock.events.console import Role
from penstock.events.envelope import utc_now
from penstock.operations.audit_log import Verification
from penstock.operations.console_access import (
    DEFAULT_DAYS,
    LONGEST_DAYS,
    ConsoleAccess,
)
from penstock.operations.console_directory import Account, Token
from penstock.runtime.console_place import as_configured, find

T = TypeVar("T")

SCOPES = ("read", "payload", "jobs", "queues", "schedules", "alerts", "admin")
ROLES = ("viewer", "operator", "admin")
_DAY = "%Y-%m-%d"
TOKEN_COLUMNS = (
    Column("id", lambda token: token.id),
    Column("name", lambda token: token.name),
    Column("owner", lambda token: token.owner, rank=2),
    Column("scopes", lambda token: " ".join(token.scopes), rank=1),
    Column("limited to", lambda token: " ".join((*token.pools, *token.queues)) or "-", rank=3),
    Column("expires", lambda token: token.expires_at.strftime(_DAY), rank=1),
    Column("used", lambda token: token.used_at.strftime(_DAY) if token.used_at else "-", rank=2),
    Column("state", lambda token: token.state(utc_now())),
)
ACCOUNT_COLUMNS = (
    Column("name", lambda account: account.name),
    Column("role", lambda account: account.role),
    Column("password", lambda account: "set" if account.password_hash else "not yet"),
    Column("state", lambda account: "disabled" if account.disabled_at else "enabled"),
)
_ROLE = click.option(
    "--role", type=click.Choice(ROLES), default="viewer", help="What the person may do."
)


@click.group(cls=Group, example="penstock api token create ci --scope read")
def api() -> None:
    """The console: tokens, accounts of people, the audit log, muted functions, and rows."""


for command in (rows, mute, unmute, muted):
    api.add_command(command)


@api.group(cls=Group, example="penstock api token ls")
def token() -> None:
    """API tokens: for programs, and for people without an account."""


@token.command(
    example="penstock api token create ci --scope read --scope jobs --queue reports\n"
    "penstock api token create ci --scope read --days 7 --json"
)
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(SCOPES),
    default=("read",),
    help="What it may do; several times for several.",
)
@click.option(
    "--pool", "pools", multiple=True, help="Acts on this pool alone; several for several."
)
@click.option("--queue", "queues", multiple=True, help="Acts on this queue alone.")
@click.option(
    "--days", type=click.IntRange(1, LONGEST_DAYS), default=DEFAULT_DAYS, help="Until it expires."
)
@click.pass_obj
def create(
    session: Session,
    name: str,
    scopes: tuple[str, ...],
    pools: tuple[str, ...],
    queues: tuple[str, ...],
    days: int,
) -> None:
    """Make a token, and print it this once: only its SHA-256 is stored.

    The limits bind what it acts on, and whose payloads it reads; what else it may read, it reads of
    all pools and queues. With the scope admin there are no limits.
    """

    async def make(store: ConsoleAccess) -> tuple[str, Token]:
        made, event = await store.create_token(
            name, scopes, owner=giver(), days=days, pools=pools, queues=queues
        )
        return made, (await store.directory()).tokens[event.token_id]

    text, made = _acted(session, "token.create", f"token:{name}", make)
    if session.as_json:
        write_json({"token": text, "id": made.id, "expires_at": made.expires_at})
        return
    write_line(text)
    note(f"token {made.id}, valid until {made.expires_at:{_DAY}}; it is not shown again")


@token.command(name="ls", example="penstock api token ls --json")
@click.pass_obj
def list_tokens(session: Session) -> None:
    """List all tokens, newest first, without the tokens themselves."""

    async def read(bus: Bus, settings: Settings) -> list[Token]:
        return [*reversed((await access(bus, settings).directory()).tokens.values())]

    tokens = session.run(read)
    if session.as_json:
        write_json([_without_digest(one) for one in tokens])
        return
    write_rows(session, tokens, TOKEN_COLUMNS, "no token was made; see 'penstock api token create'")


@token.command(example="penstock api token revoke 019aa2c4")
@click.argument("token_id", metavar="ID")
@click.pass_obj
def revoke(session: Session, token_id: str) -> None:
    """Refuse a token from now on; the beginning of its id is enough."""
    revoked = _acted(
        session, "token.revoke", f"token:{token_id}", lambda store: store.revoke_token(token_id)
    )
    _report(session, {"id": revoked.id, "state": "revoked"}, f"token {revoked.name} is revoked")


@api.group(cls=Group, example="penstock api account add ada --role admin")
def account() -> None:
    """Accounts of people, who log in with a password that they set themselves."""


@account.command(example="penstock api account add ada --role operator")
@click.argument("name")
@_ROLE
@click.pass_obj
def add(session: Session, name: str, role: str) -> None:
    """Add an account, and print the link by which its password is set, once, within a day."""

    async def make(store: ConsoleAccess) -> str:
        await store.add_account(name, cast(Role, role))
        return (await store.make_setup_link(name))[0]

    secret = _acted(session, "account.add", f"account:{name}", make, {"role": role})
    _show_link(session, name, secret)


@account.command(example="penstock api account link ada")
@click.argument("name")
@click.pass_obj
def link(session: Session, name: str) -> None:
    """Print a new link by which the account's password is set; one made before works no more."""

    async def make(store: ConsoleAccess) -> str:
        return (await store.make_setup_link(name))[0]

    _show_link(session, name, _acted(session, "account.setup_link", f"account:{name}", make))


@account.command(example="penstock api account role ada --role viewer")
@click.argument("name")
@_ROLE
@click.pass_obj
def role(session: Session, name: str, role: str) -> None:
    """Give an account another role; its sessions and tokens have it at once."""
    _acted(
        session,
        "account.change",
        f"account:{name}",
        lambda store: store.change_role(name, cast(Role, role)),
        {"role": role},
    )
    _report(session, {"account": name, "role": role}, f"account {name} is {role}")


@account.command(example="penstock api account disable ada")
@click.argument("name")
@click.pass_obj
def disable(session: Session, name: str) -> None:
    """Have an account refuse logins; its sessions and its tokens end at once, for good.

    The last administrator who can log in is not disabled.
    """
    after = {"disabled": "true"}
    target = f"account:{name}"
    _acted(session, "account.change", target, lambda store: store.disable_account(name), after)
    _report(session, {"account": name, "state": "disabled"}, f"account {name} is disabled")


@account.command(example="penstock api account enable ada")
@click.argument("name")
@click.pass_obj
def enable(session: Session, name: str) -> None:
    """Let a person log in again, with the same password."""
    after = {"disabled": "false"}
    target = f"account:{name}"
    _acted(session, "account.change", target, lambda store: store.enable_account(name), after)
    _report(session, {"account": name, "state": "enabled"}, f"account {name} is enabled")


@account.command(
    name="rm", example="penstock api account rm ada\npenstock api account rm ada --last"
)
@click.argument("name")
@click.option("--last", is_flag=True, help="Also the last administrator who can log in.")
@click.pass_obj
def remove(session: Session, name: str, last: bool) -> None:
    """Remove an account; its sessions and its tokens end.

    The last administrator who can log in is removed with --last alone: where all logins go on by
    OpenID Connect, say.
    """

    async def work(store: ConsoleAccess) -> None:
        await store.remove_account(name, may_be_last=last)

    _acted(session, "account.remove", f"account:{name}", work)
    _report(session, {"account": name, "state": "removed"}, f"account {name} is removed")


@account.command(name="ls", example="penstock api account ls")
@click.pass_obj
def list_accounts(session: Session) -> None:
    """List all accounts."""

    async def read(bus: Bus, settings: Settings) -> list[Account]:
        return [*(await access(bus, settings).directory()).accounts.values()]

    accounts = session.run(read)
    if session.as_json:
        write_json([_without_hash(one) for one in accounts])
        return
    write_rows(session, accounts, ACCOUNT_COLUMNS, "no account; see 'penstock api account add'")


@api.group(cls=Group, example="penstock api audit verify")
def audit() -> None:
    """The audit log of the console: who did what, in a chain of hashes."""


@audit.command(example="penstock api audit verify --head 3f2a9c…")
@click.option("--head", default="", metavar="HASH", help="Newest hash of an earlier check.")
@click.pass_obj
def verify(session: Session, head: str) -> None:
    """Check that no entry was changed, removed or slipped in. Exit code 1 where one was.

    The oldest hundred faults are listed, all are counted. Note the head elsewhere, and give it to a
    later check: entries that were removed from the end leave no other trace. An entry of more than
    400 days ago is gone by itself.
    """

    async def check(bus: Bus, settings: Settings) -> Verification:
        try:
            return await audit_log(bus, settings).verify(head.strip().lower())
        except ValueError as error:
            raise Refused(f"--head: {error}") from None

    checked = session.run(check)
    if session.as_json:
        write_json(checked)
    elif checked.is_whole:
        write_line(
            f"{checked.entries:,} entries, {checked.first} to {checked.last}: each holds the hash "
            f"of the one before; head {checked.head or 'none'}"
        )
    if not checked.is_whole:
        raise Failed("\n".join(_faults(checked)))


def _faults(checked: Verification) -> Iterator[str]:
    """What does not fit, one line each, and the head of what does."""
    count = checked.fault_count
    yield (
        f"{count:,} fault{'s' if count > 1 else ''} in the audit log; "
        f"{checked.entries:,} entries are part of the chain, head {checked.head or 'none'}"
    )
    for fault in checked.faults:
        yield f"  message {fault.sequence or '(none)'} of the stream: {fault.problem}"
    if count > len(checked.faults):
        yield f"  and {count - len(checked.faults):,} more"


def _acted(
    session: Session,
    action: str,
    target: str,
    work: Callable[[ConsoleAccess], Awaitable[T]],
    after: dict[str, str] | None = None,
) -> T:
    """Does something between two entries of the audit log."""

    return session.run(lambda bus, settings: acted(bus, settings, action, target, work, after))


def _show_link(session: Session, name: str, secret: str) -> None:
    settings = session.settings()
    path = f"/setup/{name}/{secret}"
    console = settings.console.public_url or find(settings) or as_configured(settings)
    link = f"{console.rstrip('/')}{path}"
    if session.as_json:
        write_json({"account": name, "path": path, "link": link})
        return
    write_line(link)
    note("it works once, within a day; console.public_url names the address that people open")


def _report(session: Session, value: dict[str, str], line: str) -> None:
    if session.as_json:
        write_json(value)
    else:
        write_line(line)


def _without_digest(token: Token) -> dict[str, object]:
    fields: dict[str, object] = {**msgspec.structs.asdict(token), "state": token.state(utc_now())}
    del fields["digest"]
    return fields


def _without_hash(account: Account) -> dict[str, object]:
    return {
        "name": account.name,
        "role": account.role,
        "created_at": account.created_at,
        "has_password": bool(account.password_hash),
        "disabled_at": account.disabled_at,
    }
