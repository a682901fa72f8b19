"""The audit log: read, checked, taken away as lines."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import msgspec
from litestar.exceptions import NotFoundException, ValidationException
from litestar.params import FromPath, FromQuery
from litestar.response import Stream

from penstock.bus.protocol import Stored
from penstock.console.api.endpoint import DEFAULT_LIMIT, Limit, Routes, read
from penstock.console.parts import Console
from penstock.console.web.scopes import Scope
from penstock.events.console import AuditRecorded
from penstock.operations.audit_chain import Fault
from penstock.operations.audit_log import Verification

_LINES = "application/x-ndjson"


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, newest first.

    Attributes:
        next: number to give as ``before`` for the following page; 0 where there is none.
    """

    items: list[AuditRecorded]
    next: int = 0


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    log = console.control.audit

    @read("/audit", Scope.ADMIN)
    async def audit(
        limit: Limit = DEFAULT_LIMIT,
        before: FromQuery[int] = 0,
        actor: FromQuery[str] = "",
        action: FromQuery[str] = "",
        result: FromQuery[str] = "",
        target: FromQuery[str] = "",
    ) -> AuditPage:
        """The audit log, newest entries first; at most the last 20,000 are searched for a page."""
        is_wanted = wanted(actor=actor, action=action, result=result, target=target)
        items, further = await log.newest(limit, max(before, 0), is_wanted)
        return AuditPage(items=items, next=further)

    @read("/audit/{number:int}", Scope.ADMIN)
    async def audit_entry(number: FromPath[int]) -> AuditRecorded:
        """One entry."""
        entry = await log.entry(number)
        if entry is None:
            raise NotFoundException(f"there is no entry {number}, or not any more")
        return entry

    @read("/audit/verify", Scope.ADMIN)
    async def audit_verify(head: FromQuery[str] = "") -> Verification:
        """Whether each entry holds the hash of the one before, from the oldest to the newest.

        ``head`` is that of an earlier answer, whose entry must still be there.
        """
        try:
            return await log.verify(head)
        except ValueError as error:
            raise ValidationException(f"head: {error}") from None

    @read("/audit/export", Scope.ADMIN, action="audit.export", media_type=_LINES)
    async def audit_export() -> Stream:
        """All entries as they are stored, oldest first, one JSON object a line.

        One that does not fit the chain has a further field ``fault``.
        """

        async def lines() -> AsyncIterator[bytes]:
            async for message, fault in log.judged():
                body = message.body if fault is None else _marked(message, fault)
                yield body.replace(b"\n", b" ") + b"\n"

        return Stream(lines(), media_type=_LINES)

    return audit, audit_entry, audit_verify, audit_export


def _marked(message: Stored, fault: Fault) -> bytes:
    """A line that does not fit, with the reason."""
    try:
        fields = msgspec.json.decode(message.body, type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        fields = {"text": message.body.decode(errors="replace")}
    return msgspec.json.encode(fields | {"sequence": message.sequence, "fault": fault.problem})


def wanted(
    *, actor: str = "", action: str = "", result: str = "", target: str = ""
) -> Callable[[AuditRecorded], bool]:
    """Which entries are shown.

    Args:
        actor: all of the name; empty for any.
        action: beginning of the action, such as ``token.``.
        result: such as ``refused``; empty for any.
        target: part of what was acted on.
    """

    def is_wanted(entry: AuditRecorded) -> bool:
        return (
            actor in ("", entry.actor)
            and entry.action.startswith(action)
            and result in ("", entry.result)
            and target in entry.target
        )

    return is_wanted
