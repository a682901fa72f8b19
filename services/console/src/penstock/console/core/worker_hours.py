"""What a pool's workers cost, from its decisions, against a fleet of fixed size. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.console.core.decision_rows import DecisionRow

_HOUR_US = 3_600_000_000


class PoolCost(msgspec.Struct, frozen=True, kw_only=True):
    """Worker-hours of a pool within a stretch of time.

    Attributes:
        worker_hours: decided workers, added up over time.
        peak_workers: the most that were decided: what a fleet of fixed size would need.
        fixed_fleet_worker_hours: of that fleet, over the same time.
        saved_share: 0 to 1; None where no worker was needed.
        decisions: that changed the number within the stretch.
    """

    pool: str
    worker_hours: float
    peak_workers: int
    fixed_fleet_worker_hours: float
    saved_share: float | None
    decisions: int


def pool_cost(pool: str, made: Iterable[DecisionRow], since_us: int, until_us: int) -> PoolCost:
    """Adds up one pool.

    Args:
        pool: its name.
        made: its decisions that changed a number, oldest first; of those before ``since_us`` the
            last one counts.
        since_us: begin of the stretch.
        until_us: its end.
    """
    workers, since, total, peak, count = 0, since_us, 0, 0, 0
    is_known = False
    for row in made:
        if row.at_us >= until_us:
            break
        at = max(row.at_us, since_us)
        current = workers if is_known else row.current
        if row.at_us >= since_us:
            total += current * (at - since)
            peak = max(peak, current)
            count += 1
        workers, since, is_known = row.target, at, True
    total += workers * (until_us - since)
    peak = max(peak, workers)
    hours, fixed = total / _HOUR_US, peak * (until_us - since_us) / _HOUR_US
    return PoolCost(
        pool=pool,
        worker_hours=hours,
        peak_workers=peak,
        fixed_fleet_worker_hours=fixed,
        saved_share=1 - hours / fixed if fixed else None,
        decisions=count,
    )
