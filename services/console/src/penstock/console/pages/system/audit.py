"""The audit log: filtered, page by page, with the state of its chain."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery

from penstock.bus.protocol import BusError
from penstock.console.api.audit import wanted
from penstock.console.api.endpoint import DEFAULT_LIMIT
from penstock.console.pages.rendering import Pages
from penstock.console.pages.sections import SYSTEM as SECTIONS
from penstock.console.parts import Console
from penstock.console.web.scopes import Scope, needs
from penstock.operations.audit_log import Verification

RESULTS = ("begun", "done", "failed", "refused", "shown")


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """This page."""
    log = console.control.audit

    @get("/audit", opt=needs(Scope.ADMIN), include_in_schema=False, media_type=MediaType.HTML)
    async def audit(
        before: FromQuery[int] = 0,
        actor: FromQuery[str] = "",
        action: FromQuery[str] = "",
        result: FromQuery[str] = "",
        target: FromQuery[str] = "",
        verify: FromQuery[bool] = False,
    ) -> Response[str]:
        filters = {"actor": actor, "action": action, "result": result, "target": target}
        problem, checked = "", None
        try:
            entries, further = await log.newest(DEFAULT_LIMIT, max(before, 0), wanted(**filters))
            checked = await log.verify() if verify else None
        except BusError as error:
            entries, further, problem = [], 0, f"The log cannot be read now: {error}."
        given = {name: value for name, value in filters.items() if value}
        return pages.page(
            "audit.html",
            "System",
            "Audit log",
            sections=SECTIONS,
            entries=entries,
            filters=filters,
            results=RESULTS,
            further=f"/audit?{urlencode(given | {'before': str(further)})}" if further else "",
            verification=f"/audit?{urlencode(given | {'verify': 'true'})}",
            checked=checked,
            verdict=_verdict(checked),
            problem=problem,
        )

    return (audit,)


def _verdict(checked: Verification | None) -> str:
    if checked is None:
        return ""
    if checked.problem:
        count = checked.fault_count
        return f"{count:,} message{'s do' if count > 1 else ' does'} not fit the chain."
    if not checked.entries:
        return "There is no entry yet."
    return (
        f"{checked.entries:,} entries, {checked.first} to {checked.last}, hold the hash of the one "
        "before each."
    )
