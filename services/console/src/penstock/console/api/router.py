"""The API's root: every group of endpoints, its description, and its limits."""

from __future__ import annotations

from collections.abc import Callable

from litestar import Router
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from penstock.console.api import (
    alert_channels,
    alert_rules,
    alerts,
    audit,
    batches,
    bulk,
    capacity,
    costs,
    decision_parts,
    decisions,
    events,
    failures,
    graphs,
    installation,
    job_logs,
    job_parts,
    jobs,
    meta,
    metrics,
    muted,
    overview,
    pool_parts,
    pools,
    queues,
    schedules,
    simulations,
    stuck,
    tags,
    views,
    workflows,
)
from penstock.console.api.access import accounts, caller, tokens
from penstock.console.api.acts import bulk as bulk_acts
from penstock.console.api.acts import bulk_changes, rebuild
from penstock.console.api.acts import computing as computing_acts
from penstock.console.api.acts import hosts as host_acts
from penstock.console.api.acts import jobs as job_acts
from penstock.console.api.acts import queues as queue_acts
from penstock.console.api.acts import schedules as schedule_acts
from penstock.console.api.acts import tags as tag_acts
from penstock.console.api.acts import workers as worker_acts
from penstock.console.api.acts import workflows as workflow_acts
from penstock.console.api.endpoint import Routes
from penstock.console.parts import Console
from penstock.console.web.scopes import Scope, needs

PATH = "/api/v1"
GROUPS: tuple[Callable[[Console], Routes], ...] = (
    overview.routes,
    pools.routes,
    pool_parts.routes,
    decisions.routes,
    decision_parts.routes,
    jobs.routes,
    job_parts.routes,
    job_logs.routes,
    stuck.routes,
    failures.routes,
    bulk.routes,
    batches.routes,
    graphs.routes,
    workflows.routes,
    schedules.routes,
    queues.routes,
    capacity.routes,
    costs.routes,
    simulations.routes,
    metrics.routes,
    tags.routes,
    views.routes,
    muted.routes,
    events.routes,
    alert_rules.routes,
    alert_channels.routes,
    alerts.routes,
    installation.routes,
    job_acts.routes,
    tag_acts.routes,
    bulk_acts.routes,
    bulk_changes.routes,
    queue_acts.routes,
    host_acts.routes,
    worker_acts.routes,
    schedule_acts.routes,
    workflow_acts.routes,
    rebuild.routes,
    computing_acts.routes,
    meta.routes,
    caller.routes,
    tokens.routes,
    accounts.routes,
    audit.routes,
)


def router(console: Console) -> Router:
    """All endpoints."""
    handlers = [handler for group in GROUPS for handler in group(console)]
    return Router(PATH, route_handlers=handlers)


def description() -> OpenAPIConfig:
    """OpenAPI 3.1 of all endpoints, at ``/api/v1/openapi.json``."""
    bearer = SecurityScheme(type="http", scheme="bearer", description="A token of this console.")
    return OpenAPIConfig(
        title="Penstock",
        version=meta.own_version(),
        description="What an installation does, and why. Errors are problem details (RFC 9457).",
        components=Components(security_schemes={"token": bearer}),
        security=[{"token": []}],
        use_handler_docstrings=True,
        openapi_router=Router(
            f"{PATH}/openapi", route_handlers=[], opt=needs(Scope.READ), include_in_schema=False
        ),
        render_plugins=[JsonRenderPlugin(path="/json")],
    )
