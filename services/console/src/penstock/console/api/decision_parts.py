"""Why a decision named this number and no other, what came of it, and the round it was made in."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, QueryParameter

from penstock.console.api.decisions import (
    Decision,
    DecisionAnswer,
    decision,
    decision_answer,
)
from penstock.console.api.endpoint import Listing, Routes, read, whole
from penstock.console.api.pools import pool_answer
from penstock.console.core import tables
from penstock.console.core.log_entry import micros
from penstock.console.core.times import instant
from penstock.console.core.why_not import WhyNot, why_not
from penstock.console.parts import Console
from penstock.console.read_models.summaries import OUTCOME_SECONDS, pickups
from penstock.console.web.access import ChangesWith

Workers = Annotated[int, QueryParameter(ge=0, le=1_000_000, description="The other number.")]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a decision.

    Attributes:
        jobs: dispatched within the minute after it that have been started, 5,000 at most.
        late: of these, the ones that started after the promise.
        pickup_p50_seconds: of these; None where there is none. The same holds for the others.
        next_at: when the pool's number was changed again; None where it was not.
    """

    decision: Decision
    until: datetime
    jobs: int
    late: int
    predicted_pickup_seconds: float | None
    pickup_p50_seconds: float | None
    pickup_p99_seconds: float | None
    next_at: datetime | None
    next_target: int | None


async def outcome(console: Console, made: Decision, later: str) -> Outcome:
    """What the jobs of the following minute waited."""
    pool = await pool_answer(console, made.pool)
    queues = [queue.queue for queue in pool.queues] if pool else []
    since_us = micros(made.at)
    following, waited = await console.read(
        lambda rows: (
            rows.row(tables.DECISIONS, later),
            pickups(rows, queues, since_us) if queues else [],
        )
    )
    return Outcome(
        decision=made,
        until=instant(since_us + OUTCOME_SECONDS * 1_000_000),
        jobs=len(waited),
        late=sum(seconds > made.sla_seconds for seconds in waited),
        predicted_pickup_seconds=made.predicted_pickup_seconds,
        pickup_p50_seconds=_quantile(waited, 0.5),
        pickup_p99_seconds=_quantile(waited, 0.99),
        next_at=instant(following.at_us) if following else None,
        next_target=following.target if following else None,
    )


def _quantile(values: list[float], share: float) -> float | None:
    return values[min(len(values) - 1, int(share * len(values)))] if values else None


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    async def decision_or_404(decision_id: str) -> DecisionAnswer:
        answer = await decision_answer(console, decision_id)
        if answer is None:
            raise NotFoundException(f"there is no decision {decision_id!r}, or not any more")
        return answer

    @read("/decisions/{decision_id:str}/why", source=ChangesWith.LOG)
    async def why(decision_id: FromPath[str], workers: Workers) -> WhyNot:
        """Why not another number: the steps that stood in its way."""
        answer = await decision_or_404(decision_id)
        if answer.event is None:
            raise NotFoundException(f"the reasons of {decision_id!r} have left the event log")
        return why_not(answer.event, workers)

    @read("/decisions/{decision_id:str}/outcome", source=ChangesWith.LOG)
    async def decision_outcome(decision_id: FromPath[str]) -> Outcome:
        """What came of a decision: what jobs of the following minute waited."""
        answer = await decision_or_404(decision_id)
        return await outcome(console, answer.decision, answer.later)

    @read("/rounds/{epoch:int}/{number:int}", source=ChangesWith.LOG)
    async def decision_round(epoch: FromPath[int], number: FromPath[int]) -> Listing[Decision]:
        """The decisions of one round of a leader, by pool."""
        if not (0 <= epoch < 2**63 and 0 <= number < 2**63):
            raise NotFoundException("there is no such round")
        tail = "WHERE epoch = ? AND round = ? ORDER BY pool LIMIT 1000"
        rows = await console.read(lambda rows: rows.rows(tables.DECISIONS, tail, (epoch, number)))
        if not rows:
            raise NotFoundException(f"round {epoch}/{number} decided nothing that is kept")
        return whole(console, [decision(row) for row in rows])

    return why, decision_outcome, decision_round
