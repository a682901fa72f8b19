"""Makes the console's own rows anew."""

from __future__ import annotations

import msgspec
from litestar.params import JSONBody

from penstock.console.api.acts.receipt import ACCEPTED, ApiRequest, ShortText, source_of
from penstock.console.api.endpoint import Routes
from penstock.console.parts import Console
from penstock.console.web.acting import act, acting
from penstock.console.web.scopes import Scope


class RebuildOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, for people."""

    reason: ShortText = ""


class Rebuilding(msgspec.Struct, frozen=True, kw_only=True):
    """What is made anew: why, and how far it is; empty where it has ended already."""

    rebuilding: str


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @act("POST", "/rebuild", Scope.ADMIN, "console.rebuild", status_code=ACCEPTED)
    async def rebuild(request: ApiRequest, data: JSONBody[RebuildOrder]) -> Rebuilding:
        """Folds the event log into new rows beside those that serve, which they then replace."""
        acting(request).after = {"reason": data.reason} if data.reason else {}
        reason = ", ".join(filter(None, (f"requested by {source_of(request)}", data.reason)))
        await console.projection.rebuild.begin(reason)
        return Rebuilding(rebuilding=console.standing.rebuilding)

    return (rebuild,)
