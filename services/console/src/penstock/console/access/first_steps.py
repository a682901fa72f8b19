"""What the log of a console says that no person can log in to yet: there is no default password."""

from __future__ import annotations

import logging

from penstock.console.access.control import AccessControl

log = logging.getLogger("penstock.console")

_READ_SECONDS = 10.0


async def show(control: AccessControl) -> None:
    """Logs how to get in, where there is no account and no login provider."""
    accounts = control.directory.accounts
    await control.directory.until(lambda: bool(accounts), _READ_SECONDS)
    if accounts or control.oidc is not None:
        return
    log.warning(
        "no person can log in yet: 'penstock api account add NAME --role admin' makes the first "
        "account, and prints a link by which its password is set"
    )
