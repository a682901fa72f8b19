"""Every endpoint that acts, from the router: its audit entries, and tokens of other queues."""

from __future__ import annotations

import re
from typing import Any

from tests.component.console.conftest import Site
from tests.component.console.signing_in import Guarded
from tests.component.console.test_api_acting import Person, die, dispatch, send
from tests.component.console.test_console_matrix import endpoints

from penstock.console.app import application
from penstock.console.core.computing import OtherSettings
from penstock.console.web.acting import (
    SAFE_METHODS,
    action_of,
    has_checked_limits,
    is_own_record,
)
from penstock.console.web.credentials import Local
from penstock.console.web.scopes import Scope, scope_of
from penstock.events.scaling import ScalingDecisionMade

API = "/api/v1"
EVERY = [scope for scope in Scope if scope is not Scope.PUBLIC]
Endpoint = tuple[str, str]


def acting(site: Site) -> dict[Endpoint, Any]:
    """Endpoints of the API that act, by method and path."""
    app = application(site.console, Local())
    return {
        (method, path.removeprefix(API)): handler.opt
        for method, path, handler in endpoints(app)
        if path.startswith(API) and method not in SAFE_METHODS and not is_own_record(handler.opt)
    }


def with_values(path: str, value: str = "1") -> str:
    return API + re.sub(r"\{[^}]*\}", value, path)


async def test_each_act_and_each_refusal_of_one_stands_in_the_audit_log(site: Site) -> None:
    guarded = Guarded(site)
    admin, reader = await guarded.bearer(*EVERY), await guarded.bearer("read")
    needing_more: set[str] = set()
    every = acting(site)
    for (method, path), options in every.items():
        await admin.request(method, with_values(path), json={})
        if scope_of(options) is not Scope.READ:
            needing_more.add(action_of(options))
            answer = await reader.request(method, with_values(path), json={})
            assert answer.status_code == 403, (method, path)
    entries, _ = await guarded.control.audit.newest(2_000)
    results: dict[str, set[str]] = {}
    for entry in entries:
        results.setdefault(entry.action, set()).add(entry.result)
    actions = {action_of(options) for options in every.values()}
    assert len(actions) > 40
    assert {one for one in actions if "begun" not in results.get(one, ())} == set()
    assert {one for one in actions if not results[one] & {"done", "failed"}} == set()
    assert {one for one in needing_more if "refused" not in results[one]} == set()


async def test_a_token_of_another_queue_acts_on_nothing(site: Site) -> None:
    """A new endpoint that looks at limits itself has to be added here."""
    guarded = Guarded(site)
    everything: Any = site.caller(Person())
    job = await dispatch(everything)
    dead = await dispatch(everything)
    await die(site, dead)
    site.spawn(site.console.bulk.directory.run)
    what = {"verb": "cancel", "filter": "queue:reports"}
    preview = await send(everything, "POST", "/bulk/preview", what, status=200)
    confirmed = {**what, "confirm": preview["confirm"], "count": preview["count"]}
    action = (await send(everything, "POST", "/bulk", confirmed))["id"]
    simulations = site.console.computing.simulations
    simulation = simulations.begin("reports", OtherSettings(max_workers=9), 60, 1, "eve", "eve").id
    await simulations.abort(simulation)
    decision = ScalingDecisionMade(
        pool="reports", current=1, target=2, reasons=(), strategy="deadline", sla_seconds=30
    )
    await site.store(decision)
    hold = {"at_least": 1, "until": "2030-01-01T00:00:00Z", "reason": "r"}
    graphs = {"target": "graphs", "verb": "cancel", "filter": "state:running"}
    targets: dict[Endpoint, tuple[str, Any]] = {
        ("POST", "/jobs"): ("", {"function": "shop.load", "queue": "reports"}),
        ("POST", "/jobs/{job_id}/cancel"): (job, {}),
        ("POST", "/jobs/{job_id}/retry"): (dead, {}),
        ("PUT", "/jobs/{job_id}/tags/{tag}"): (job, None),
        ("DELETE", "/jobs/{job_id}/tags/{tag}"): (job, None),
        ("POST", "/queues/{name}/pause"): ("reports", {"reason": "r"}),
        ("POST", "/queues/{name}/resume"): ("reports", {}),
        ("PUT", "/pools/{name}/hold"): ("reports", hold),
        ("DELETE", "/pools/{name}/hold"): ("reports", None),
        ("POST", "/decisions/{decision_id}/recompute"): (decision.id, None),
        ("POST", "/pools/{name}/what-if"): ("reports", {"max_workers": 9}),
        ("POST", "/simulations"): ("", {"pool": "reports", "max_workers": 9}),
        ("DELETE", "/simulations/{simulation_id}"): (simulation, None),
        ("POST", "/bulk/preview"): ("", graphs),
        ("POST", "/bulk"): ("", {**graphs, "confirm": "", "count": 1}),
        ("POST", "/bulk/{action_id}/abort"): (action, {}),
        ("POST", "/bulk/{action_id}/pause"): (action, {}),
        ("POST", "/bulk/{action_id}/resume"): (action, {}),
    }
    every = acting(site)
    assert {one for one, options in every.items() if has_checked_limits(options)} == set(targets)
    limited = await guarded.bearer(*EVERY, queues=("elsewhere",))
    let_through = []
    for method, path in every:
        value, body = targets.get((method, path), ("1", {}))
        answer = await limited.request(method, with_values(path, value), json=body)
        if answer.status_code != 403:
            let_through.append((method, path, answer.status_code, answer.text))
    assert let_through == []
    assert (await site.console.client.job(job)).state == "waiting"
    held = await send(everything, "POST", "/bulk/preview", what, status=200)
    assert held["count"] == 1
    own = (await limited.post(f"{API}/bulk/preview", json=what)).json()
    assert (own["count"], own["examples"]) == (0, []), "nor does it see them"
