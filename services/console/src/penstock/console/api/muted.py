"""Muted functions: their failed jobs are counted, and not listed among failures and alerts."""

from __future__ import annotations

from datetime import datetime

import msgspec
from litestar.params import FromPath, JSONBody

from penstock.bus.protocol import WrongSequence
from penstock.console.api.acts.receipt import ApiRequest, Reason, source_of
from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.parts import Console
from penstock.console.web.acting import act, acting
from penstock.console.web.conflict import Conflict
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.muting import FunctionMuted
from penstock.operations.muted_functions import MutedFunctions


class MutedItem(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is muted, by whom and why."""

    function: str
    reason: str
    by: str
    since: datetime


def muted_item(event: FunctionMuted) -> MutedItem:
    """A mute as it is sent."""
    return MutedItem(function=event.function, reason=event.reason, by=event.by, since=event.at)


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    def functions(request: ApiRequest, function: str) -> tuple[MutedFunctions, str]:
        """What changes them, and who does."""
        acting(request).target = f"function:{function[:200]}"
        principal: Principal = request.scope["state"]["principal"]
        made = MutedFunctions(console.bus, console.subjects, source_of(request))
        return made, principal.name

    @read("/muted")
    async def muted() -> Listing[MutedItem]:
        """Functions that are muted, the last first."""
        every = reversed(console.alerts.book.muted.values())
        return whole(console, [muted_item(one) for one in every])

    @act("PUT", "/muted/{function:str}", Scope.JOBS, "function.mute", status_code=204)
    async def mute(request: ApiRequest, function: FromPath[str], data: JSONBody[Reason]) -> None:
        """Lists no failures of a function from now on: they are counted, and its jobs run on."""
        changed, name = functions(request, function)
        acting(request).after = {"reason": data.reason} if data.reason else {}
        try:
            sequence = await changed.mute(function, name, data.reason)
        except WrongSequence:
            raise _changed_meanwhile() from None
        await console.alerts.book.reached(sequence)

    @act("DELETE", "/muted/{function:str}", Scope.JOBS, "function.unmute", status_code=204)
    async def unmute(request: ApiRequest, function: FromPath[str]) -> None:
        """Lists the failures of a function again."""
        changed, name = functions(request, function)
        try:
            sequence = await changed.unmute(function, name)
        except WrongSequence:
            raise _changed_meanwhile() from None
        await console.alerts.book.reached(sequence)

    return muted, mute, unmute


def _changed_meanwhile() -> Conflict:
    return Conflict("it changed meanwhile; try again")
