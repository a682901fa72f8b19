"""Accounts: new ones, their roles, their end for a while or for good, and links for passwords."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from litestar.exceptions import NotFoundException, ValidationException
from litestar.params import FromPath, JSONBody
from msgspec import UNSET, Meta, UnsetType

from penstock.console.api.access.caller import AnyRequest
from penstock.console.api.endpoint import Routes, read
from penstock.console.parts import Console
from penstock.console.web.acting import act, acting
from penstock.console.web.scopes import Scope
from penstock.operations.console_access import SETUP_HOURS
from penstock.operations.console_directory import Account

RoleName = Literal["viewer", "operator", "admin"]


class AccountItem(msgspec.Struct, frozen=True, kw_only=True):
    """An account; one that has a password and is not disabled can log in."""

    name: str
    role: str
    created_at: datetime
    has_password: bool
    setup_open_until: datetime | None
    disabled: bool
    disabled_at: datetime | None


class NewAccount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An account to be made."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    role: RoleName = "viewer"


class ChangedAccount(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be changed of an account; what is left out stays.

    Attributes:
        disabled: true ends its sessions and tokens, and has it refuse logins.
    """

    role: RoleName | UnsetType = UNSET
    disabled: bool | UnsetType = UNSET


class SetupLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link by which the password is set, once.

    Attributes:
        path: below this console's address.
        link: all of it, where `console.public_url` is set; else empty.
    """

    path: str
    expires_at: datetime
    link: str = ""


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    control = console.control

    @read("/accounts", Scope.ADMIN)
    async def accounts() -> list[AccountItem]:
        """All accounts."""
        return [_account_item(one) for one in control.directory.accounts.values()]

    @act("POST", "/accounts", Scope.ADMIN, "account.add", is_dangerous=True, shows_secret=True)
    async def add_account(request: AnyRequest, data: JSONBody[NewAccount]) -> SetupLink:
        """Adds an account; the answer holds the link by which its password is set."""
        acting(request).target = f"account:{data.name}"
        acting(request).after = {"role": data.role}
        await control.store.add_account(data.name, data.role)
        return await _setup_link(console, data.name)

    @act("PUT", "/accounts/{name:str}", Scope.ADMIN, "account.change", is_dangerous=True)
    async def change_account(
        request: AnyRequest, name: FromPath[str], data: JSONBody[ChangedAccount]
    ) -> AccountItem:
        """Gives an account another role, disables or enables it; its sessions follow at once."""
        account = _account(console, name)
        wanted = {"role": data.role, "disabled": data.disabled}
        changes = {key: value for key, value in wanted.items() if value is not UNSET}
        if not changes:
            raise ValidationException("found no change, expected role or disabled, or both")
        acting(request).target = f"account:{name}"
        acting(request).before = {key: _text(_state(account)[key]) for key in changes}
        acting(request).after = {key: _text(value) for key, value in changes.items()}
        # what takes rights away comes first, else a failure between both leaves more than before
        if data.disabled is True and account.disabled_at is None:
            await control.store.disable_account(name)
        if data.role is not UNSET:
            await control.store.change_role(name, data.role)
        if data.disabled is False and account.disabled_at is not None:
            await control.store.enable_account(name)
        await control.directory.until(
            lambda: changes.items() <= _state(_account(console, name)).items()
        )
        return _account_item(_account(console, name))

    @act(
        "DELETE",
        "/accounts/{name:str}",
        Scope.ADMIN,
        "account.remove",
        is_dangerous=True,
        status_code=204,
    )
    async def remove_account(request: AnyRequest, name: FromPath[str]) -> None:
        """Removes an account, and ends its sessions."""
        account = _account(console, name)
        acting(request).target = f"account:{name}"
        acting(request).before = {"role": account.role}
        await control.store.remove_account(name)
        await control.directory.until(lambda: name not in control.directory.accounts)

    @act(
        "POST",
        "/accounts/{name:str}/setup-link",
        Scope.ADMIN,
        "account.setup_link",
        is_dangerous=True,
        shows_secret=True,
    )
    async def setup_link(request: AnyRequest, name: FromPath[str]) -> SetupLink:
        """A link by which the account's password is set, once, within a day."""
        acting(request).target = f"account:{name}"
        acting(request).after = {"hours": str(SETUP_HOURS)}
        _account(console, name)
        return await _setup_link(console, name)

    return accounts, add_account, change_account, remove_account, setup_link


async def _setup_link(console: Console, name: str) -> SetupLink:
    secret, expires_at = await console.control.store.make_setup_link(name)
    accounts = console.control.directory.accounts
    await console.control.directory.until(
        lambda: name in accounts and accounts[name].setup_expires_at == expires_at
    )
    path = f"/setup/{name}/{secret}"
    public = console.settings.console.public_url.rstrip("/")
    return SetupLink(path=path, expires_at=expires_at, link=f"{public}{path}" if public else "")


def _state(account: Account) -> dict[str, object]:
    """What of an account is changed by :class:`ChangedAccount`."""
    return {"role": account.role, "disabled": account.disabled_at is not None}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _account(console: Console, name: str) -> Account:
    account = console.control.directory.accounts.get(name)
    if account is None:
        raise NotFoundException(f"there is no account {name[:80]!r}")
    return account


def _account_item(account: Account) -> AccountItem:
    return AccountItem(
        name=account.name,
        role=account.role,
        created_at=account.created_at,
        has_password=bool(account.password_hash),
        setup_open_until=account.setup_expires_at,
        disabled=account.disabled_at is not None,
        disabled_at=account.disabled_at,
    )
