"""The one place through which everything goes that acts: no effect without an audit entry."""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any

from litestar.exceptions import ServiceUnavailableException
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from penstock.bus.protocol import BusError, Extent
from penstock.console.web.acting import SAFE_METHODS, begin, method_of
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope as AccessScope
from penstock.console.web.scopes import scope_of
from penstock.operations.audit_log import AuditLog

log = logging.getLogger("penstock.console")

_REFUSALS_EVERY_SECONDS = 60.0
_MOST_REFUSALS_A_MINUTE = 120
_MOST_COUNTED = 1_000
_LONGEST_PATH = 300
_LOOK_EVERY_SECONDS = 60.0
_RESERVED = 0.1
"""Of the stream's bound: for logins, and for who has more than the scope ``read``."""
_LEAST_ERROR = 400


def address_of(scope: Scope) -> str:
    """The address that a request came from."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _target(scope: Scope) -> str:
    options: dict[str, Any] = getattr(scope.get("route_handler"), "opt", {})
    is_public = scope_of(options) is AccessScope.PUBLIC
    return str(scope.get("path_template", "") if is_public else scope["path"])[:_LONGEST_PATH]


class Recorder:
    """Runs handlers that act between two entries of the audit log.

    Args:
        audit: the log.
        extent: how much the stream holds that it lies on.
    """

    def __init__(self, audit: AuditLog, extent: Callable[[], Awaitable[Extent]]) -> None:
        self.audit, self._extent = audit, extent
        self._looked_at, self._is_nearly_full = -_LOOK_EVERY_SECONDS, False
        self._refused: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._unrecorded: Counter[tuple[str, str, str]] = Counter()

    async def run(
        self,
        principal: Principal,
        action: str,
        scope: Scope,
        receive: Receive,
        send: Send,
        handler: ASGIApp,
    ) -> None:
        """Runs a handler. What only reads has one entry, stored before anything is shown.

        Raises:
            BusError: the entry could not be stored; the handler did not run.
            ServiceUnavailableException: what is left of the stream is reserved for others.
        """
        is_acting = method_of(scope) not in SAFE_METHODS
        if is_acting and principal.scopes <= {AccessScope.READ} and await self._nearly_full():
            raise ServiceUnavailableException(
                "the audit log is nearly full, and the rest of it is kept for operators: raise "
                "streams.others_max_bytes"
            )
        about: dict[str, Any] = {
            "address": address_of(scope),
            "request_id": str(scope["state"].get("request_id", "")),
        }
        act = begin(scope["state"], action, scope["path"][:_LONGEST_PATH])
        if method_of(scope) in SAFE_METHODS:
            await self.audit.record(principal.name, action, "shown", target=act.target, **about)
            await handler(scope, receive, send)
            return
        begun = await self.audit.record(principal.name, action, "begun", target=act.target, **about)
        ended = False

        async def end(result: str, detail: str) -> None:
            nonlocal ended
            if ended:
                return
            ended = True
            try:
                await self.audit.record(
                    principal.name,
                    action,
                    result,
                    target=act.target,
                    of=begun.number,
                    before=act.before,
                    after=act.after,
                    detail=detail,
                    **about,
                )
            except BusError as error:
                log.error("entry %d, %s: its end was not stored: %s", begun.number, action, error)

        async def send_recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                failed = message["status"] >= _LEAST_ERROR
                detail = act.detail or (f"status {message['status']}" if failed else "")
                await end("failed" if failed else "done", detail)
            await send(message)

        try:
            await handler(scope, receive, send_recorded)
        except BaseException as error:
            await end("failed", type(error).__name__)
            raise

    async def refused(self, actor: str, action: str, scope: Scope, detail: str) -> None:
        """Records that a request was refused: of the same caller and action once a minute.

        The next entry says how many were not recorded since.
        The path of a setup link holds its secret: what anyone may reach is named without values.
        Where the broker is away the log of the process has it alone: what is refused stays so.
        """
        address = address_of(scope)
        key = (actor, action, address)
        if not self._is_recorded(key):
            if key in self._unrecorded or len(self._unrecorded) < _MOST_COUNTED:
                self._unrecorded[key] += 1
            return
        if await self._nearly_full():
            log.warning("a refusal of %s to %s was not recorded: nearly full", action, address)
            return
        if unrecorded := self._unrecorded.pop(key, 0):
            detail = f"{detail}; {unrecorded:,} more since the entry before"
        request_id = str(scope["state"].get("request_id", ""))
        try:
            await self.audit.record(
                actor,
                action,
                "refused",
                target=_target(scope),
                address=address,
                request_id=request_id,
                detail=detail,
            )
        except BusError as error:
            log.warning("a refusal of %s to %s was not recorded: %s", action, address, error)

    async def _nearly_full(self) -> bool:
        """Whether the reserve of a bounded stream is reached; looks once a minute."""
        now = monotonic()
        if now - self._looked_at >= _LOOK_EVERY_SECONDS:
            self._looked_at = now
            try:
                extent = await self._extent()
            except BusError:
                return self._is_nearly_full
            left = extent.max_bytes - extent.bytes
            self._is_nearly_full = extent.max_bytes > 0 and left < extent.max_bytes * _RESERVED
        return self._is_nearly_full

    def _is_recorded(self, key: tuple[str, str, str]) -> bool:
        now = monotonic()
        while self._refused and now - next(iter(self._refused.values())) > _REFUSALS_EVERY_SECONDS:
            self._refused.popitem(last=False)
        if key in self._refused or len(self._refused) >= _MOST_REFUSALS_A_MINUTE:
            return False
        self._refused[key] = now
        return True
