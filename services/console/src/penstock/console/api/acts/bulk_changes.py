"""Changes of bulk actions that have not ended: paused, resumed, aborted."""

from __future__ import annotations

from typing import Any

import msgspec
from litestar.exceptions import PermissionDeniedException
from litestar.params import FromPath, JSONBody

from penstock.bus.protocol import WrongSequence
from penstock.console.api.access.caller import caller_of
from penstock.console.api.acts.bulk import Speed, actor_of
from penstock.console.api.acts.receipt import ACCEPTED, ApiRequest
from penstock.console.api.bulk import BulkItem, action_or_404, bulk_item
from penstock.console.api.endpoint import Routes
from penstock.console.core.bulk.actions import Action
from penstock.console.parts import Console
from penstock.console.web.acting import act, acting
from penstock.console.web.conflict import Conflict
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.bulk import BulkAborted, BulkEvent, BulkPaused, BulkResumed

_TRIES = 20


class Going(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an action goes on; `per_second` None for as before."""

    per_second: Speed | None = None


class Nothing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An empty object."""


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    directory = console.bulk.directory

    async def change(request: ApiRequest, action_id: str, event: BulkEvent) -> BulkItem:
        """Stores what a person did to an action that has not ended."""
        action = action_or_404(console, action_id)
        _check_own(request, action)
        acting(request).target = f"bulk:{action.id}"
        for _ in range(_TRIES):
            if action.state.ended:
                raise Conflict(f"the action is {action.state} already")
            try:
                changed = await directory.store(event, action.sequence) or action
                return bulk_item(changed, caller_of(request))
            except WrongSequence:
                newer = await directory.changed_since(action.sequence, action.id, 1.0)
                action = newer or action
        raise Conflict("the action changes too quickly; try again")

    def about(request: ApiRequest, action_id: str) -> dict[str, Any]:
        return {"bulk_id": action_id, "by": actor_of(request), "source": "console"}

    @act(
        "POST",
        "/bulk/{action_id:str}/abort",
        Scope.JOBS,
        "bulk.abort",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def abort(
        request: ApiRequest, action_id: FromPath[str], data: JSONBody[Nothing]
    ) -> BulkItem:
        """Ends an action where it is; what was done stays."""
        del data
        return await change(request, action_id, BulkAborted(**about(request, action_id)))

    @act(
        "POST",
        "/bulk/{action_id:str}/pause",
        Scope.JOBS,
        "bulk.pause",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def pause(
        request: ApiRequest, action_id: FromPath[str], data: JSONBody[Nothing]
    ) -> BulkItem:
        """Pauses an action until it is resumed."""
        del data
        return await change(request, action_id, BulkPaused(**about(request, action_id)))

    @act(
        "POST",
        "/bulk/{action_id:str}/resume",
        Scope.JOBS,
        "bulk.resume",
        status_code=ACCEPTED,
        checks_limits=True,
    )
    async def resume(
        request: ApiRequest, action_id: FromPath[str], data: JSONBody[Going]
    ) -> BulkItem:
        """Lets a paused action go on; also changes the speed of one that runs."""
        event = BulkResumed(per_second=data.per_second or 0, **about(request, action_id))
        return await change(request, action_id, event)

    return abort, pause, resume


def _check_own(request: ApiRequest, action: Action) -> None:
    """Raises PermissionDeniedException: a limited token changes its own actions alone."""
    principal: Principal = request.scope["state"]["principal"]
    if principal.is_limited and action.start.by != principal.name:
        raise PermissionDeniedException(
            f"{principal.name} is limited to some pools or queues; {action.start.by} started this"
        )
