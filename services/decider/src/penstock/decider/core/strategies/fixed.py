"""Strategy `fixed`: always the pool's minimum, whatever is measured.

Choose it to hold a pool by hand, or to see what a day costs without scaling.

Weakness: a fixed number is too many workers at night and too few at noon.
"""

from __future__ import annotations

from penstock.decider.core.strategy import Demand, StrategyInputs, ask


class Fixed:
    """See the module."""

    name = "fixed"

    def demand(self, inputs: StrategyInputs) -> Demand:
        return ask(self.name, inputs.pool.profile.min_workers, "the pool's minimum")
