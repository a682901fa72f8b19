"""The parts of one pool, each for itself, and why it has as many workers as it has."""

from __future__ import annotations

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from penstock.console.api.decisions import DecisionAnswer, decision_answer, decision_in_force
from penstock.console.api.endpoint import AsOfText, Listing, Routes, read, whole
from penstock.console.api.pools import PoolAnswer, pool_answer
from penstock.console.core import tables
from penstock.console.core.worker_hours import PoolCost
from penstock.console.parts import Console
from penstock.console.read_models.costs import DAY_SECONDS, pool_costs
from penstock.console.read_models.queues import QueueItem
from penstock.console.read_models.summaries import FunctionItem, functions
from penstock.console.web.access import ChangesWith
from penstock.events.snapshot import Budget
from penstock.views.live_workers import WorkerRow


class BudgetAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of the jobs of a pool that may start late.

    Attributes:
        budget: None where it is not counted, or nothing was measured yet.
        cost: of the last 24 hours.
    """

    pool: str
    budget: Budget | None
    cost: PoolCost


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    async def pool_or_404(name: str) -> PoolAnswer:
        answer = await pool_answer(console, name)
        if answer is None:
            raise NotFoundException(f"there is no pool {name!r}")
        return answer

    @read("/pools/{name:str}/queues")
    async def pool_queues(name: FromPath[str]) -> Listing[QueueItem]:
        """Queues that a pool serves."""
        return whole(console, (await pool_or_404(name)).queues)

    @read("/pools/{name:str}/workers")
    async def pool_workers(name: FromPath[str]) -> Listing[WorkerRow]:
        """Workers of a pool that reported within the last ten seconds."""
        return whole(console, (await pool_or_404(name)).workers)

    @read("/pools/{name:str}/functions")
    async def pool_functions(name: FromPath[str]) -> Listing[FunctionItem]:
        """Functions of the newest 10,000 jobs of a pool, the most frequent first."""
        queues = [queue.queue for queue in (await pool_or_404(name)).queues]
        items = await console.read(lambda rows: functions(rows, queues)) if queues else []
        return whole(console, items)

    @read("/pools/{name:str}/budget")
    async def pool_budget(name: FromPath[str]) -> BudgetAnswer:
        """What is left of a pool's jobs that may start late, and what it cost within 24 hours."""
        answer = await pool_or_404(name)
        [cost] = await pool_costs(console, [name], DAY_SECONDS)
        budget = answer.snapshot.budget if answer.snapshot else None
        return BudgetAnswer(pool=name, budget=budget, cost=cost)

    @read("/pools/{name:str}/explanation", source=ChangesWith.LOG, answers_as_of=True)
    async def explanation(name: FromPath[str], as_of: AsOfText = "") -> DecisionAnswer:
        """Why a pool has as many workers as it has: its last decision with all reasons."""
        await pool_or_404(name)
        if past := await console.past(as_of):
            answer = await decision_in_force(console, name, past)
        else:
            newest = "WHERE pool = ? ORDER BY sequence DESC LIMIT 1"
            rows = await console.read(lambda rows: rows.rows(tables.DECISIONS, newest, (name,)))
            answer = await decision_answer(console, rows[0].id) if rows else None
        if answer is None:
            raise NotFoundException(f"no decision about pool {name!r} was made yet")
        return answer

    return (
        pool_queues,
        pool_workers,
        pool_functions,
        pool_budget,
        explanation,
    )
