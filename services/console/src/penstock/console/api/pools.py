"""Pools: load, workers, promise."""

from __future__ import annotations

import time
from datetime import datetime

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from penstock.console.api.decisions import Decision, decision
from penstock.console.api.endpoint import (
    AsOfText,
    Listing,
    Routes,
    SeriesSeconds,
    read,
    whole,
)
from penstock.console.core import tables
from penstock.console.core.promises import Promise
from penstock.console.core.series import TIERS, Points
from penstock.console.parts import Console
from penstock.console.past.moments import NotKept
from penstock.console.past.past import Past
from penstock.console.read_models.overview import promise_rows
from penstock.console.read_models.projection import Standing
from penstock.console.read_models.queues import QueueItem, queue_items
from penstock.console.web.access import ChangesWith
from penstock.events.snapshot import PoolSnapshot
from penstock.views.live_workers import WorkerRow
from penstock.views.pool_board import PoolRow

_LAST_DECISIONS = 20
_MOST_MARKS = 200
_LAST_SEQUENCE = 2**63 - 1


class PoolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One pool.

    Attributes:
        snapshot: its last measurements; None before the first.
        decisions: that changed its number of workers, newest first.
    """

    pool: PoolRow
    promise: Promise
    snapshot: PoolSnapshot | None
    queues: list[QueueItem]
    workers: list[WorkerRow]
    decisions: list[Decision]
    standing: Standing


async def pool_answer(console: Console, name: str, past: Past | None = None) -> PoolAnswer | None:
    """Everything about one pool, now or at a past moment; None where there is no such pool."""
    view = past or console.present
    pool = next((row for row in view.pool_rows() if row.pool == name), None)
    if pool is None:
        return None
    until = past.events.sequence if past else _LAST_SEQUENCE
    queues, decided = await console.read(
        lambda rows: (
            queue_items(rows, view.settings, past),
            rows.rows(
                tables.DECISIONS,
                "WHERE pool = ? AND is_change = 1 AND sequence <= ? ORDER BY sequence DESC LIMIT ?",
                (name, until, _LAST_DECISIONS),
            ),
        )
    )
    return PoolAnswer(
        pool=pool,
        promise=next(row for row in promise_rows(view, queues) if row.pool == name),
        snapshot=view.board.pools.get(name),
        queues=[queue for queue in queues if queue.pool == name],
        workers=[worker for worker in view.worker_rows() if worker.pool == name],
        decisions=[decision(row) for row in decided],
        standing=past.standing if past else console.standing,
    )


class PoolSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A pool over time.

    Attributes:
        points: each the largest value of its stretch; predictions and targets are those of
            decisions.
        decisions: that changed the number of workers, newest first, at most 200.
    """

    sla_seconds: float
    points: Points
    decisions: list[Decision]


async def pool_series(
    console: Console, name: str, seconds: float, moment: datetime | None = None
) -> PoolSeries | None:
    """So many seconds of a pool up to now, or to a past moment; None where there is no such pool.

    Raises:
        NotKept: measurements of then are not kept.
    """
    pool = console.present.pools.get(name)
    if pool is None:
        return None
    until = time.time() if moment is None else moment.timestamp()
    if until < time.time() - TIERS[-1].kept_seconds:
        raise NotKept("measurements are kept for 14 days")
    points = await console.points("pool", name, seconds, moment)
    tail = (
        "WHERE pool = ? AND is_change = 1 AND at_us BETWEEN ? AND ? ORDER BY sequence DESC LIMIT ?"
    )
    values = (name, round((until - seconds) * 1e6), round(until * 1e6), _MOST_MARKS)
    changes = await console.read(lambda rows: rows.rows(tables.DECISIONS, tail, values))
    return PoolSeries(
        sla_seconds=pool.profile.sla_seconds,
        points=points,
        decisions=[decision(row) for row in changes],
    )


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/pools", source=ChangesWith.PRESENT, answers_as_of=True)
    async def pools(as_of: AsOfText = "") -> Listing[PoolRow]:
        """All pools."""
        past = await console.past(as_of)
        return whole(console, (past or console.present).pool_rows(), past)

    @read("/pools/{name:str}", answers_as_of=True)
    async def pool(name: FromPath[str], as_of: AsOfText = "") -> PoolAnswer:
        """One pool: measurements, queues, workers, last decisions."""
        answer = await pool_answer(console, name, await console.past(as_of))
        if answer is None:
            raise NotFoundException(f"there is no pool {name!r}")
        return answer

    @read("/pools/{name:str}/series", answers_as_of=True)
    async def series(
        name: FromPath[str], seconds: SeriesSeconds = 900, as_of: AsOfText = ""
    ) -> PoolSeries:
        """Waiting jobs, pickup times and workers over time, with the decisions."""
        answer = await pool_series(console, name, seconds, console.history.moment(as_of))
        if answer is None:
            raise NotFoundException(f"there is no pool {name!r}")
        return answer

    return pools, pool, series
