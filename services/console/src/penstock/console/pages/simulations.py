"""What other settings would have done with the jobs of the past hours: begun, followed, shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from litestar import Response, post
from litestar.exceptions import HTTPException, NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from penstock.console.api.acts.computing import spawn_of
from penstock.console.computing.simulations import SimulatedFleet, Simulation
from penstock.console.pages import trying
from penstock.console.pages.acting import through_api
from penstock.console.pages.acting.buttons import AnyRequest, viewer
from penstock.console.pages.acting.page_act import BadField
from penstock.console.pages.forms import COMPUTING_FORM, go, read_fields
from penstock.console.pages.rendering import Pages, page_at, percent
from penstock.console.parts import Console
from penstock.console.web.scopes import Scope

STRETCHES = ((1, "hour"), (3, "3 hours"), (6, "6 hours"), (12, "12 hours"), (24, "24 hours"))
_USUAL_HOURS = 6
_BAD_REQUEST, _GONE = 400, 410
_COMPARED = 2


def routes(console: Console, pages: Pages) -> Sequence[HTTPRouteHandler]:
    """These pages."""
    kept = console.computing.simulations

    def form(
        pool: str, fields: Mapping[str, str], problem: str = "", status: int = 200
    ) -> Response[str]:
        if pool not in console.present.pools:
            raise NotFoundException(f"there is no pool {pool!r}")
        hours = fields.get("hours", "")
        page = pages.page(
            "pool/simulate.html",
            "Pools",
            f"Simulate {pool}",
            pool=pool,
            fields=trying.FIELDS,
            entered=trying.entered_of(fields),
            present=trying.present(console, pool),
            stretches=STRETCHES,
            hours=int(hours) if hours in _HOURS else _USUAL_HOURS,
            spawn=spawn_of(console, pool),
            earlier=kept.newest_first(pool),
            in_words=trying.in_words,
            problem=problem,
        )
        page.status_code = status
        return page

    @page_at("/pools/{pool:str}/simulate")
    async def ask(pool: FromPath[str]) -> Response[str]:
        return form(pool, {})

    @post("/pools/{pool:str}/simulate", **COMPUTING_FORM)
    async def begin(request: AnyRequest, pool: FromPath[str]) -> Response[str]:
        fields = await read_fields(request)
        try:
            body = trying.body_of(trying.entered_of(fields))
        except BadField as error:
            return form(pool, fields, f"{error}.", _BAD_REQUEST)
        hours = fields.get("hours", "")
        since = {"since_seconds": 3600.0 * int(hours)} if hours in _HOURS else {}
        body = {**body, **since, "pool": pool}
        answer = await through_api.send(request, "POST", "/simulations", body)
        if not answer.is_accepted:
            return form(pool, fields, answer.problem, answer.status)
        return go(f"/simulations/{msgspec.json.decode(answer.body, type=Simulation).id}")

    def shown(
        request: AnyRequest, simulation_id: str, problem: str = "", status: int = 200
    ) -> Response[str]:
        try:
            simulation = kept.get(simulation_id)
        except NotFoundException:
            raise
        except HTTPException as error:
            page = pages.page("missing.html", "Pools", "Not kept any more", detail=error.detail)
            page.status_code = _GONE
            return page
        principal = viewer(request)
        page = pages.page(
            "pool/simulation.html",
            "Pools",
            f"Simulation of {simulation.pool}",
            simulation=simulation,
            settings=trying.in_words(simulation.settings),
            may_abort=principal.name == simulation.by or Scope.ADMIN in principal.scopes,
            labels=_labels(simulation),
            comparison=_comparison(simulation.result),
            dearest=max((row.worker_seconds for row in simulation.result), default=0.0),
            problem=problem,
        )
        page.status_code = status
        return page

    @page_at("/simulations/{simulation_id:str}")
    async def simulation(request: AnyRequest, simulation_id: FromPath[str]) -> Response[str]:
        return shown(request, simulation_id)

    @post("/simulations/{simulation_id:str}/abort", **COMPUTING_FORM)
    async def abort(request: AnyRequest, simulation_id: FromPath[str]) -> Response[str]:
        answer = await through_api.send(request, "DELETE", f"/simulations/{simulation_id}")
        if not answer.is_accepted:
            return shown(request, simulation_id, answer.problem, answer.status)
        return go(f"/simulations/{simulation_id}")

    return ask, begin, simulation, abort


def _labels(simulation: Simulation) -> list[str]:
    """What each row of a result is."""
    named = {"as set": "as set", "instead": trying.in_words(simulation.settings)}
    return [
        f"a fixed fleet of {row.fixed_workers}"
        if row.fixed_workers
        else named.get(row.settings.partition(", ")[2], row.settings)
        for row in simulation.result
    ]


def _comparison(result: Sequence[SimulatedFleet]) -> str:
    """The cost of the other settings as a sentence; empty where there is nothing to compare."""
    if len(result) < _COMPARED or not all(row.worker_seconds for row in result):
        return ""
    was, instead, *fixed = result
    against = [f"{_time_against(instead, was)} than as set"]
    against += [
        f"{_time_against(instead, row)} than a fixed fleet of {row.fixed_workers}" for row in fixed
    ]
    late = f"{percent(instead.late_share)} of the jobs are late"
    return f"Under the other settings {late}, and workers take {', '.join(against)}."


def _time_against(one: SimulatedFleet, other: SimulatedFleet) -> str:
    ratio = one.worker_seconds / other.worker_seconds - 1
    return f"{abs(ratio) * 100:.0f} % {'more' if ratio > 0 else 'less'} time"


_HOURS = {str(hours) for hours, _ in STRETCHES}
