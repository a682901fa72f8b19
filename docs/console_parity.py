"""Makes console-api.md: every endpoint of the console's design, and whether it is built; used by
generate.py.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tables import table

from penstock.config import Settings
from penstock.console.api import router
from penstock.console.app import assemble
from penstock.console.web.acting import action_of
from penstock.console.web.scopes import scope_of
from penstock.testing.memory.bus import MemoryBus

INTRODUCTION = """
# Endpoints of the console

Below `/api/v1`. An endpoint with a scope is there; one that is `planned` is not built yet. What
acts stands in the audit log under the name in the last column. [The console](console.md) says how
the API is used; `/api/v1/openapi.json` describes each endpoint that is built.
"""

DESIGN: dict[str, str] = {
    "Overview": "GET /overview /promises /attention /stats",
    "Pools": """GET /pools /pools/{p} /pools/{p}/series /pools/{p}/budget /pools/{p}/queues
        /pools/{p}/functions /pools/{p}/workers /pools/{p}/explanation POST /pools/{p}/what-if
        PUT /pools/{p}/hold DELETE /pools/{p}/hold""",
    "Decisions": """GET /decisions /decisions/{id} /decisions/{id}/why /decisions/{id}/outcome
        POST /decisions/{id}/recompute GET /rounds/{epoch}/{round}""",
    "Jobs": """GET /jobs /jobs/stats /jobs/suggest /jobs/{id} /jobs/{id}/events /jobs/{id}/timeline
        /jobs/{id}/payload /jobs/{id}/logs /jobs/{id}/checkpoints POST /jobs /jobs/{id}/cancel
        /jobs/{id}/retry /jobs/{id}/recover PUT /jobs/{id}/tags/{tag}
        DELETE /jobs/{id}/tags/{tag}""",
    "Stuck": "GET /stuck POST /stuck/{id}/recover /recover",
    "Failures": """GET /failures /failures/{fingerprint} /failures/{fingerprint}/series /dead
        /dead/{id} POST /dead/{id}/retry DELETE /dead/{id}""",
    "Bulk": "POST /bulk/preview /bulk GET /bulk /bulk/{id} POST /bulk/{id}/abort",
    "Batches": """GET /batches /batches/{id} /batches/{id}/jobs POST /batches /batches/{id}/cancel
        /batches/{id}/retry-failed""",
    "Graphs": """GET /graphs /graphs/{id} /graphs/{id}/nodes /graphs/shapes POST /graphs
        /graphs/{id}/cancel /graphs/{id}/retry-failed /graphs/{id}/pause /graphs/{id}/resume""",
    "Workflows": """GET /workflows /workflows/{id} /workflows/{id}/steps /workflows/definitions
        POST /workflows/run /workflows/{id}/cancel /workflows/{id}/pause /workflows/{id}/resume
        /workflows/{id}/signal""",
    "Schedules": """GET /schedules /schedules/{n} /schedules/{n}/ticks PUT /schedules/{n}
        DELETE /schedules/{n} POST /schedules/{n}/pause /schedules/{n}/resume
        /schedules/{n}/run-now""",
    "Queues": """GET /queues /queues/{q} /queues/{q}/series /queues/pauses POST /queues/{q}/pause
        /queues/{q}/resume""",
    "Workers and hosts": """GET /workers /workers/{id} /hosts /hosts/{h} /hosts/{h}/series /capacity
        /advice""",
    "Forecast and cost": "GET /forecasts /forecasts/accuracy /cost /cost/fixed-fleet /cost/jobs",
    "Simulations": "POST /simulations GET /simulations/{id} DELETE /simulations/{id}",
    "Metrics": "GET /metrics/catalog /metrics/series /metrics/records /metrics/prometheus",
    "Events": "GET /events /events/stream /events/schema /events/{seq}",
    "Health": "GET /health /health/history /connections /streams",
    "Alerts": """GET /alerts/rules POST /alerts/rules GET /alerts/rules/{id} PUT /alerts/rules/{id}
        DELETE /alerts/rules/{id} POST /alerts/rules/{id}/toggle /alerts/rules/{id}/test
        /alerts/rules/{id}/backtest GET /alerts/channels POST /alerts/channels
        PUT /alerts/channels/{id} DELETE /alerts/channels/{id} POST /alerts/channels/{id}/test
        GET /alerts /alerts/heartbeat /alerts/{id} POST /alerts/{id}/acknowledge
        /alerts/{id}/resolve
        GET /silences POST /silences DELETE /silences/{id}
        GET /notifications""",
    "Tags and views": """GET /tags /tags/{t} /views POST /views PUT /views/{id} DELETE /views/{id}
        PUT /muted/{function} DELETE /muted/{function}""",
    "Audit": "GET /audit /audit/{seq} /audit/verify /audit/export",
    "Access": """GET /me /me/sessions DELETE /me/sessions/{id} GET /tokens POST /tokens
        DELETE /tokens/{id} GET /accounts POST /accounts PUT /accounts/{id} DELETE /accounts/{id}
        POST /accounts/{id}/setup-link GET /roles POST /session/elevate""",
    "Settings and meta": "GET /settings /settings/explain /version /openapi.json /problems",
}
"""The table of the design: methods, each with the paths that follow it."""

_PARAMETER = re.compile(r"\{[^}]*\}")
_TYPE = re.compile(r":\w+\}")
Endpoint = tuple[str, str]


def console_page() -> str:
    """The page."""
    built = endpoints()
    parts, listed = [INTRODUCTION.strip()], set[Endpoint]()
    for group, text in DESIGN.items():
        rows = []
        for method, path in designed(text):
            key = method, shape(path)
            listed.add(key)
            _, scope, action = built.get(key, ("", "planned", ""))
            rows.append([f"`{method} {path}`", scope, action])
        count = sum(row[1] != "planned" for row in rows)
        parts += [f"## {group}: {count} of {len(rows)}", table(["endpoint", "scope", "act"], rows)]
    others = sorted(built.keys() - listed)
    rows = [[f"`{key[0]} {built[key][0]}`", *built[key][1:]] for key in others]
    parts += ["## Beyond the design", table(["endpoint", "scope", "act"], rows)]
    return "\n\n".join(parts)


def designed(text: str) -> Iterator[Endpoint]:
    """Methods and paths of a group."""
    method = ""
    for word in text.split():
        if word.startswith("/"):
            yield method, word
        else:
            method = word


def endpoints() -> dict[Endpoint, tuple[str, str, str]]:
    """Path, scope and action of each endpoint that is built, by method and shape of the path."""
    with tempfile.TemporaryDirectory() as folder:
        console = assemble(MemoryBus(), Settings(), Path(folder))
        try:
            handlers = [handler for group in router.GROUPS for handler in group(console)]
        finally:
            console.close()
    return {
        (str(method), shape(path)): (
            _TYPE.sub("}", path),
            str(scope_of(handler.opt) or ""),
            action_of(handler.opt),
        )
        for handler in handlers
        for path in handler.paths
        for method in handler.http_methods
        if str(method) in ("GET", "POST", "PUT", "DELETE")
    }


def shape(path: str) -> str:
    """A path without the names of its parameters."""
    return _PARAMETER.sub("{}", path)
