"""Computations: decisions again, decisions under other settings, and simulations of the past.

They change nothing, but take the console's time: each caller may begin so many a minute.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import msgspec
from litestar.exceptions import NotFoundException, PermissionDeniedException
from litestar.params import FromPath, JSONBody

from penstock.console.api.acts.receipt import ACCEPTED, ApiRequest
from penstock.console.api.decisions import Decision, DecisionAnswer, decision_answer
from penstock.console.api.endpoint import Routes
from penstock.console.computing.parts import InputChange, Question, Recomputed
from penstock.console.computing.simulations import Simulation
from penstock.console.core import tables
from penstock.console.core.computing import OtherSettings, Seconds, ShortId, SpawnSeconds, tried
from penstock.console.parts import Console
from penstock.console.web.access import PRINCIPAL
from penstock.console.web.acting import act, acting, check_limits
from penstock.console.web.connected import while_connected
from penstock.console.web.credentials import Principal
from penstock.console.web.scopes import Scope
from penstock.events.scaling import ScalingDecisionMade

_OK = 200
USUAL_SPAWN_SECONDS = 2.0
"""Where no start of a worker was measured."""
_LEAST_SPAWN_SECONDS = 0.001


class RecomputedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision, computed again from the log by the decider's own code.

    Attributes:
        recomputed: ``equal`` (bit for bit), ``different``, ``other program`` (it differs, and
            another version of the decider made it) or ``not in the log``.
        why: where it is not equal: what differs, or what is missing.
        changes: the least change of each input that would have changed the number; nearest first.
        took_seconds: about zero for an answer that was computed before.
    """

    decision: Decision
    recomputed: str
    why: tuple[str, ...]
    changes: tuple[InputChange, ...]
    took_seconds: float


class WhatIfOrder(OtherSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to try, and for which decision.

    Attributes:
        decision: id of a decision of the pool; empty: the last one.
    """

    decision: ShortId = ""


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """What a round would have decided under other settings, beside what it decided.

    Attributes:
        settings: that were tried.
        event: the decision that was made, with its reasons.
        recomputed: whether that one comes out equal; see `RecomputedDecision`.
        why: where it does not.
        instead: the decision under the other settings, with its reasons; None where the round is
            not in the log.
        took_seconds: about zero for an answer that was computed before.
    """

    decision: Decision
    settings: OtherSettings
    event: ScalingDecisionMade
    recomputed: str
    why: tuple[str, ...]
    instead: ScalingDecisionMade | None
    took_seconds: float


class SimulationOrder(OtherSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to try on the jobs of the past.

    Attributes:
        pool: whose jobs arrive again.
        since_seconds: how far back.
        spawn_seconds: that a worker takes to start; None: as measured, else 2 s.
    """

    pool: ShortId
    since_seconds: Seconds = 6 * 3600.0
    spawn_seconds: SpawnSeconds | None = None


def _caller(request: ApiRequest) -> Principal:
    principal: Principal = request.scope["state"][PRINCIPAL]
    return principal


async def _allowed(console: Console, request: ApiRequest, decision_id: str) -> DecisionAnswer:
    """A decision whose pool the caller may ask about. Raises NotFoundException."""
    answer = await decision_answer(console, decision_id)
    if answer is None:
        check_limits(_caller(request))
        raise NotFoundException(f"there is no decision {decision_id[:64]!r}, or not any more")
    check_limits(_caller(request), pool=answer.decision.pool)
    acting(request).target = f"decision:{answer.decision.id}"
    if answer.event is None:
        raise NotFoundException(f"{answer.decision.id} has left the event log: recompute it sooner")
    return answer


async def _newest(console: Console, pool: str) -> str:
    """Id of a pool's last decision. Raises NotFoundException."""
    newest = "WHERE pool = ? ORDER BY sequence DESC LIMIT 1"
    rows = await console.read(lambda rows: rows.rows(tables.DECISIONS, newest, (pool,)))
    if not rows:
        raise NotFoundException(f"no decision about pool {pool[:64]!r} was made yet")
    return rows[0].id


def _in_words(settings: OtherSettings) -> dict[str, str]:
    """For the audit log."""
    fields = msgspec.to_builtins(settings)
    return {name: str(value) for name, value in fields.items() if value is not None}


class Spawn(NamedTuple):
    """How long a worker of a pool takes to start.

    Attributes:
        seconds: the median.
        is_measured: whether one has started lately; else the median is assumed.
    """

    seconds: float
    is_measured: bool


def spawn_of(console: Console, pool: str) -> Spawn:
    """How long a worker of a pool takes to start, as its last snapshot has it."""
    snapshot = console.present.board.pools.get(pool)
    spawn = snapshot.spawn if snapshot else None
    if spawn is None or not spawn.count:
        return Spawn(USUAL_SPAWN_SECONDS, is_measured=False)
    return Spawn(max(spawn.p50_seconds, _LEAST_SPAWN_SECONDS), is_measured=True)


def routes(console: Console) -> Routes:
    """The endpoints of this group."""
    computing = console.computing

    async def answered(request: ApiRequest, question: Question) -> tuple[Recomputed, float]:
        """The answer, and how many seconds it took; given up when the caller goes."""
        began = time.monotonic()
        caller = _caller(request).person
        answer = await while_connected(request, computing.recompute(question, caller))
        return answer, time.monotonic() - began

    @act(
        "POST",
        "/decisions/{decision_id:str}/recompute",
        Scope.READ,
        "decision.recompute",
        checks_limits=True,
        computes=True,
        status_code=_OK,
    )
    async def recompute(request: ApiRequest, decision_id: FromPath[str]) -> RecomputedDecision:
        """Computes a decision again from the log, and compares it bit for bit."""
        made = (await _allowed(console, request, decision_id)).decision
        question = Question(decision_id=made.id, sequence=made.sequence, pool=made.pool)
        answer, took_seconds = await answered(request, question)
        return RecomputedDecision(
            decision=made,
            recomputed=answer.recomputed,
            why=answer.why,
            changes=answer.changes,
            took_seconds=took_seconds,
        )

    @act(
        "POST",
        "/pools/{name:str}/what-if",
        Scope.READ,
        "pool.what-if",
        checks_limits=True,
        computes=True,
        status_code=_OK,
    )
    async def what_if(
        request: ApiRequest, name: FromPath[str], data: JSONBody[WhatIfOrder]
    ) -> WhatIf:
        """What a decision would have been under other settings: same state, same measurements."""
        check_limits(_caller(request), pool=name)
        other = tried(data)
        decision_id = data.decision or await _newest(console, name)
        decision_and_event = await _allowed(console, request, decision_id)
        made, event = decision_and_event.decision, decision_and_event.event
        if made.pool != name or event is None:
            raise NotFoundException(f"{made.id} is a decision about pool {made.pool!r}")
        acting(request).after = _in_words(other)
        question = Question(decision_id=made.id, sequence=made.sequence, pool=name, other=other)
        answer, took_seconds = await answered(request, question)
        return WhatIf(
            decision=made,
            settings=other,
            event=event,
            recomputed=answer.recomputed,
            why=answer.why,
            instead=answer.instead,
            took_seconds=took_seconds,
        )

    @act(
        "POST",
        "/simulations",
        Scope.READ,
        "simulation.begin",
        checks_limits=True,
        computes=True,
        status_code=ACCEPTED,
    )
    async def simulate(request: ApiRequest, data: JSONBody[SimulationOrder]) -> Simulation:
        """Lets the jobs of the past hours arrive again under other settings, in the background."""
        caller = _caller(request)
        check_limits(caller, pool=data.pool)
        if data.pool not in console.present.pools:
            raise NotFoundException(f"there is no pool {data.pool!r}")
        settings = tried(data)
        computing.count(caller.person)
        simulation = computing.simulations.begin(
            data.pool,
            settings,
            data.since_seconds,
            data.spawn_seconds or spawn_of(console, data.pool).seconds,
            caller.name,
            caller.person,
        )
        begun = acting(request)
        begun.target, begun.after = f"simulation:{simulation.id}", _in_words(settings)
        return simulation

    @act(
        "DELETE",
        "/simulations/{simulation_id:str}",
        Scope.READ,
        "simulation.abort",
        checks_limits=True,
        computes=True,
        status_code=ACCEPTED,
    )
    async def abort(request: ApiRequest, simulation_id: FromPath[str]) -> Simulation:
        """Ends a simulation; its own person may, and an administrator."""
        caller = _caller(request)
        simulation = computing.simulations.get(simulation_id)
        check_limits(caller, pool=simulation.pool)
        if simulation.by != caller.name and Scope.ADMIN not in caller.scopes:
            raise PermissionDeniedException(
                f"{simulation.by} began it: only that person, or an administrator, ends it"
            )
        acting(request).target = f"simulation:{simulation.id}"
        return await computing.simulations.abort(simulation.id)

    return recompute, what_if, simulate, abort
