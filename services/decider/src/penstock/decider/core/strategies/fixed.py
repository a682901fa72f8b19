"""Strategy `fixed`: always the pool's minimum, whatever is measured."""

from __future__ import annotations

from penstock.decider.core.strategy import Demand, StrategyInputs
from penstock.events.scaling import Reason


class Fixed:
    """See the module."""

    name = "fixed"

    def demand(self, inputs: StrategyInputs) -> Demand:
        workers = inputs.pool.profile.min_workers
        text = f"{workers} wanted by fixed: the pool's minimum"
        return Demand(
            workers=workers,
            reasons=(Reason(step="strategy", rule="fixed", workers=workers, text=text),),
        )
