"""All pages, and the connection by which they are kept current."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from litestar import Request, get
from litestar.exceptions import ValidationException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromQuery
from litestar.response import Stream
from litestar.types import ExceptionHandlersMap

from penstock.console.live.hub import MOST_CLIENTS
from penstock.console.live.places import Places
from penstock.console.pages import (
    capacity,
    costs,
    decisions,
    errors,
    failures,
    job_data,
    job_sets,
    jobs,
    overview,
    pools,
    queues,
    saved_views,
    search,
    simulations,
)
from penstock.console.pages.access import account, accounts, login, single_sign_on
from penstock.console.pages.acting import bulk, confirming
from penstock.console.pages.alerts import firing, rules
from penstock.console.pages.rendering import Pages
from penstock.console.pages.system import api_docs, audit, health, metrics
from penstock.console.pages.workflows import batches, definitions, runs, schedules
from penstock.console.parts import Console
from penstock.console.read_models.fair_reads import CALLER
from penstock.console.web.access import admission
from penstock.console.web.assets import Assets
from penstock.console.web.scopes import Scope, needs

PAGES: tuple[Callable[[Console, Pages], Sequence[HTTPRouteHandler]], ...] = (
    overview.routes,
    pools.routes,
    queues.routes,
    costs.routes,
    search.routes,
    decisions.routes,
    simulations.routes,
    jobs.routes,
    job_data.routes,
    failures.routes,
    job_sets.routes,
    saved_views.routes,
    bulk.routes,
    runs.routes,
    definitions.routes,
    batches.routes,
    schedules.routes,
    capacity.routes,
    health.routes,
    metrics.routes,
    api_docs.routes,
    login.routes,
    single_sign_on.routes,
    account.routes,
    accounts.routes,
    audit.routes,
    firing.routes,
    rules.routes,
    confirming.routes,
)


MOST_OF_CALLER = 20
"""Open pages of one person, also where half of all places are taken."""


class Site(NamedTuple):
    """What an application serves beside the API.

    Attributes:
        handlers: of all pages, of their files and of ``/live``.
        answers: to errors, of pages and of the API.
    """

    handlers: list[HTTPRouteHandler]
    answers: ExceptionHandlersMap


def site(console: Console) -> Site:
    """Makes all pages."""
    assets = Assets()
    pages = Pages(console, assets)
    made = [handler for page in PAGES for handler in page(console, pages)]
    console.hub.state(pages.state_json)

    places = Places(MOST_CLIENTS, MOST_OF_CALLER, is_shared=True)

    @get("/live", opt=needs(Scope.READ), include_in_schema=False)
    async def live(request: Request[Any, Any, Any], t: FromQuery[str] = "") -> Stream:
        topics = {name for name in t.split(",") if name}
        if unknown := topics - set(console.hub.topics):
            raise ValidationException(f"there is no topic {sorted(unknown)[0][:40]!r}")
        leave = places.take(CALLER.get())
        messages = console.hub.messages(topics, admission(request.scope), leave)
        weakref.finalize(messages, leave)  # where its client is gone before the first is sent
        return Stream(
            messages,
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    return Site([*made, live, assets.handler()], errors.answers(console, pages))
