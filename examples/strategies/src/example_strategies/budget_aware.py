"""Strategy `budget_aware`: what `hybrid` asks for, as far as the day's worker-hours go.

    workers = min(hybrid, hours left today / pace_hours)

What is left is never given out faster than it would last for another `pace_hours`, so the number
comes down gently and the budget is not exceeded. Shows how to remember: what was spent comes back
as ``inputs.memory``, also after a restart and with another leader.

What the pool's own settings hold is held all the same, and counted: `min_workers`, a cooldown, and
with the policy `keep-busy` every worker while there is a backlog: take it out of `policies`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.config.section import Positive, Section
from penstock.decider.core.options import demand as demand_of
from penstock.decider.core.registry import BUILTIN
from penstock.decider.core.strategies.schedule import zone
from penstock.decider.core.strategy import Demand, StrategyInputs, ask


class Options(Section, frozen=True, kw_only=True):
    """`[pools.NAME.options.budget_aware]`.

    Attributes:
        worker_hours_per_day: ten workers for an hour are ten.
        pace_hours: what is left has to last for this long at any time.
        time_zone: an IANA name; whose midnight begins a day.
    """

    worker_hours_per_day: Positive = 100.0
    pace_hours: Positive = 1.0
    time_zone: str = "UTC"

    def __post_init__(self) -> None:
        super().__post_init__()
        zone(self.time_zone)


class BudgetAware:
    """See the module."""

    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        options, needed = inputs.options, demand_of("hybrid", BUILTIN, inputs)
        memory = _account(inputs, options.time_zone)
        left = max(options.worker_hours_per_day - memory["spent_hours"], 0.0)
        affordable = math.floor(left / options.pace_hours)
        why = (
            f"{left:.1f} of {options.worker_hours_per_day:g} worker-hours are left today, "
            f"enough for {affordable}; {needed.reasons[-1].text}"
        )
        return ask("budget_aware", min(needed.workers, affordable), why, memory=memory)


def _account(inputs: StrategyInputs, time_zone: str) -> Mapping[str, Any]:
    """What was spent today: what is remembered, and the current workers since then."""
    local = datetime.fromtimestamp(inputs.now, zone(time_zone))
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0).timestamp()
    before = inputs.memory
    today = before.get("day") == str(local.date())
    since = max(before.get("at", inputs.now), midnight)
    hours = inputs.current * max(inputs.now - since, 0.0) / 3600
    spent = before["spent_hours"] if today else 0.0
    return {"day": str(local.date()), "spent_hours": spent + hours, "at": inputs.now}
