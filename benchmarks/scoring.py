"""From the leaderboard's rows to one line a strategy: late jobs, cost and calm beside `hybrid`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from penstock.decider.simulator.studies.study import SimulationResult

REFERENCE = "hybrid"
GOAL_LATE = 0.01
DELAY_SECONDS = 1.05
"""Oldest that a measurement is when it is decided on: a look each second, and deciding."""


def can_hold(row: SimulationResult) -> bool:
    """The promise is longer than starting a worker and seeing that one is needed."""
    return row.sla_seconds > row.spawn_seconds + DELAY_SECONDS


def score(rows: Sequence[SimulationResult]) -> dict[str, dict[str, Any]]:
    """By strategy, over every trace and promise; costs and actions as multiples."""
    reference = {_setting(row): row for row in rows if row.strategy == REFERENCE}
    names = list(dict.fromkeys(row.strategy for row in rows))
    return {name: _line([row for row in rows if row.strategy == name], reference) for name in names}


def _setting(row: SimulationResult) -> tuple[str, float, float]:
    return row.trace, row.sla_seconds, row.spawn_seconds


def _line(
    rows: Sequence[SimulationResult], reference: dict[tuple[str, float, float], SimulationResult]
) -> dict[str, Any]:
    holdable = [row for row in rows if can_hold(row)]
    kept = [row for row in holdable if row.late_share <= GOAL_LATE]
    beside = [(row, reference[_setting(row)]) for row in rows if _setting(row) in reference]
    return {
        "settings": len(rows),
        "late_share_worst": max((row.late_share for row in holdable), default=None),
        "kept_of_holdable": [len(kept), len(holdable)],
        "later_than_hybrid": sum(row.late_share > other.late_share for row, other in beside),
        "cost_of_bound": _spread([row.worker_seconds / row.bound_worker_seconds for row in rows]),
        "cost_of_hybrid": _compared(beside, lambda row: row.worker_seconds),
        "actions_of_hybrid": _compared(beside, lambda row: row.actions),
        "reversals_an_hour": _spread([row.reversals / row.hours for row in rows]),
        "actions_an_hour": _spread([row.actions / row.hours for row in rows]),
    }


def _compared(
    beside: Sequence[tuple[SimulationResult, SimulationResult]],
    figure: Callable[[SimulationResult], float],
) -> dict[str, float] | None:
    return _spread([figure(row) / figure(other) for row, other in beside if figure(other)])


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    named = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return {name: round(value, 3) for name, value in named.items()}
