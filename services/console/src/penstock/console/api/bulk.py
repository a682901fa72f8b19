"""Bulk actions: what was started, how far each is, and what it did not act on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime

import msgspec
from litestar.exceptions import NotFoundException, TooManyRequestsException
from litestar.params import FromPath
from litestar.response import Stream

from penstock.console.api.access.caller import AnyRequest, caller_of
from penstock.console.api.argument_search import shown_filter
from penstock.console.api.endpoint import (
    DEFAULT_LIMIT,
    EVENT_STREAM,
    Limit,
    Listing,
    Routes,
    read,
    whole,
)
from penstock.console.core.bulk.actions import Action, BulkState
from penstock.console.parts import Console
from penstock.console.web.access import admission
from penstock.console.web.credentials import Principal
from penstock.events.bulk import Refused

MOST_STREAMS = 100
_HEARTBEAT_SECONDS = 15.0
_NOT_BUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class BulkItem(msgspec.Struct, frozen=True, kw_only=True):
    """One bulk action.

    Attributes:
        state: `running`, `paused`, `aborted` or `done`.
        by: who started it.
        total: how many were to be acted on.
        changed: of a done one, those that changed after the preview and were left.
        refused: how many were looked at and not acted on.
        reasons: how many of these, by why.
        refusals: up to 50 of them.
        position: event of the log as of which the set was chosen.
        seconds_left: None where it is not running.
    """

    id: str
    title: str
    verb: str
    target: str
    filter: str
    ids: int
    reason: str
    tags: tuple[str, ...]
    to_queue: str
    state: str
    by: str
    total: int
    done: int
    refused: int
    changed: int
    reasons: Mapping[str, int]
    refusals: tuple[Refused, ...]
    per_second: int
    position: int
    as_of: datetime
    started_at: datetime
    changed_at: datetime
    seconds_left: float | None
    ended_by: str


def bulk_item(action: Action, principal: Principal) -> BulkItem:
    """An action as it is sent to a caller."""
    start, progress = action.start, action.progress
    left = max(0, start.total - progress.done - progress.refused)
    is_done, is_running = action.state is BulkState.DONE, action.state is BulkState.RUNNING
    return BulkItem(
        id=action.id,
        title=start.title,
        verb=start.verb,
        target=start.target,
        filter=shown_filter(principal, start.filter),
        ids=len(start.ids),
        reason=start.reason,
        tags=start.tags,
        to_queue=start.to_queue,
        state=action.state.value,
        by=start.by,
        total=start.total,
        done=progress.done,
        refused=progress.refused,
        changed=left if is_done else 0,
        reasons=progress.reasons,
        refusals=progress.examples,
        per_second=action.per_second,
        position=start.position,
        as_of=start.chosen_at,
        started_at=start.at,
        changed_at=action.changed_at,
        seconds_left=left / action.per_second if is_running else None,
        ended_by=action.ended_by,
    )


def action_or_404(console: Console, action_id: str) -> Action:
    """An action by its id. Raises NotFoundException."""
    action = console.bulk.directory.get(action_id)
    if action is None:
        raise NotFoundException(f"there is no bulk action {action_id[:64]!r}, or not any more")
    return action


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    streams: set[object] = set()

    @read("/bulk")
    async def actions(request: AnyRequest, limit: Limit = DEFAULT_LIMIT) -> Listing[BulkItem]:
        """Bulk actions of the last 30 days, newest first."""
        newest = console.bulk.directory.newest_first()
        shown = zip(newest, range(limit), strict=False)
        return whole(console, [bulk_item(one, caller_of(request)) for one, _ in shown])

    @read("/bulk/{action_id:str}")
    async def one(request: AnyRequest, action_id: FromPath[str]) -> BulkItem:
        """One bulk action: how far it is, and what was refused."""
        return bulk_item(action_or_404(console, action_id), caller_of(request))

    @read("/bulk/{action_id:str}/stream", media_type=EVENT_STREAM)
    async def stream(request: AnyRequest, action_id: FromPath[str]) -> Stream:
        """One bulk action as JSON, again after each change, until it has ended."""
        action = action_or_404(console, action_id)
        if len(streams) >= MOST_STREAMS:
            raise TooManyRequestsException(f"{MOST_STREAMS} streams are open; close one of them")
        return Stream(
            _followed(console, action, streams, caller_of(request), admission(request.scope)),
            media_type=EVENT_STREAM,
            headers=_NOT_BUFFERED,
        )

    return actions, one, stream


async def _followed(
    console: Console,
    action: Action,
    streams: set[object],
    principal: Principal,
    is_admitted: Callable[[], bool],
) -> AsyncIterator[bytes]:
    own = object()
    streams.add(own)
    try:
        yield _message(action, principal)
        while not action.state.ended:
            newer = await console.bulk.directory.changed_since(
                action.sequence, action.id, _HEARTBEAT_SECONDS
            )
            if newer is None or not is_admitted():
                return
            if newer.sequence == action.sequence:
                yield b": still here\n\n"
                continue
            action = newer
            yield _message(action, principal)
            await asyncio.sleep(0)
    finally:
        streams.discard(own)


def _message(action: Action, principal: Principal) -> bytes:
    body = msgspec.json.encode(bulk_item(action, principal))
    return b"id: %d\nevent: bulk\ndata: %s\n\n" % (action.sequence, body)
