"""Worker-hours of pools, from their decisions."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.console.core import tables
from penstock.console.core.log_entry import micros
from penstock.console.core.worker_hours import PoolCost, pool_cost
from penstock.console.parts import Console
from penstock.console.read_models.store import Snapshot
from penstock.events.envelope import utc_now

DAY_SECONDS = 86_400.0


async def pool_costs(
    console: Console, pools: Sequence[str], within_seconds: float
) -> list[PoolCost]:
    """What pools cost within a stretch of time up to now, counted from the first decision of all: a
    fleet would have cost nothing before the installation began.

    Args:
        console: its parts.
        pools: their names.
        within_seconds: length of the stretch, 14 days at most: so long decisions are kept.
    """
    until_us = micros(utc_now())
    since_us = until_us - int(within_seconds * 1_000_000)

    def query(rows: Snapshot) -> list[PoolCost]:
        first = rows.rows(tables.DECISIONS, "ORDER BY sequence LIMIT 1")
        began_us = max(since_us, first[0].at_us) if first else since_us
        return [_cost(rows, pool, began_us, until_us) for pool in pools]

    return await console.read(query)


def _cost(rows: Snapshot, pool: str, since_us: int, until_us: int) -> PoolCost:
    before = rows.rows(
        tables.DECISIONS,
        "WHERE pool = ? AND is_change = 1 AND at_us < ? ORDER BY sequence DESC LIMIT 1",
        (pool, since_us),
    )
    within = rows.rows(
        tables.DECISIONS,
        "WHERE pool = ? AND is_change = 1 AND at_us >= ? ORDER BY sequence",
        (pool, since_us),
    )
    return pool_cost(pool, [*before, *within], since_us, until_us)
