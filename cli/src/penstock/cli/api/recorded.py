"""Acts of `penstock api`, each between two entries of the console's audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from penstock.bus.protocol import Bus, BusError
from penstock.cli.errors import Refused
from penstock.cli.scaling.giver import giver
from penstock.config import Settings
from penstock.events.subjects import BadName, Subjects
from penstock.operations.audit_log import AuditLog
from penstock.operations.console_access import AccessRefused, ConsoleAccess

T = TypeVar("T")


async def acted(
    bus: Bus,
    settings: Settings,
    action: str,
    target: str,
    work: Callable[[ConsoleAccess], Awaitable[T]],
    after: dict[str, str] | None = None,
) -> T:
    """Does something to tokens or accounts.

    Args:
        bus: a connection that may store these, and entries of the audit log.
        settings: of this command.
        action: as it stands in the audit log.
        target: what it acts on.
        work: the act itself.
        after: the new values.

    Raises:
        Refused: it is not possible; nothing was done.
        BusError
    """
    log, actor = audit_log(bus, settings), giver()
    begun = await log.record(actor, action, "begun", target=target)
    try:
        result = await work(access(bus, settings))
    except BaseException as error:
        is_refused = isinstance(error, (AccessRefused, BadName))
        ended, detail = "refused" if is_refused else "failed", str(error) or type(error).__name__
        end = log.record(actor, action, ended, target=target, of=begun.number, detail=detail)
        with suppress(BusError):  # the error itself says more
            await asyncio.shield(end)
        if is_refused:
            raise Refused(detail) from None
        raise
    await asyncio.shield(
        log.record(actor, action, "done", target=target, of=begun.number, after=after)
    )
    return result


def access(bus: Bus, settings: Settings) -> ConsoleAccess:
    """Tokens and accounts of the installation."""
    return ConsoleAccess(bus, Subjects(settings.prefix), giver())


def audit_log(bus: Bus, settings: Settings) -> AuditLog:
    """The audit log of the installation."""
    return AuditLog(bus, Subjects(settings.prefix), giver())
