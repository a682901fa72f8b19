"""Strategy `wait_time`: steps up while jobs wait for long, and down while they hardly do.

    wait = the longer of: mean of the recent pickup times, mean age of the jobs that wait now
    wait > high_seconds (the promise) and a job waits: up_step (1) more
    wait < low_seconds (a sixth of it): down_step (1) fewer

with `step_seconds` (60) between two steps. The age counts because a mean of past pickups does
not change while no job is picked up.

Choose it where waits drift over hours and single late jobs do not matter.

Weakness: it acts when jobs are late already, a worker a minute, and on a mean, which hides the
longest waits.
"""

from __future__ import annotations

from penstock.config.section import Positive
from penstock.decider.core.strategies.steps import Steps, step
from penstock.decider.core.strategy import Demand, StrategyInputs
from penstock.events.snapshot import PoolSnapshot

_LOW_SHARE = 1 / 6


class Options(Steps, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        high_seconds: a mean wait above which it steps up; none is the promise.
        low_seconds: a mean wait below which it steps down; none is a sixth of the above.
    """

    high_seconds: Positive | None = None
    low_seconds: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = self.low_seconds, self.high_seconds
        if low is not None and high is not None and low > high:
            raise ValueError(
                f"found low_seconds {low:g} above high_seconds {high:g}, expected it below"
            )


class WaitTime:
    """See the module."""

    name = "wait_time"
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        options, wait = inputs.options, wait_seconds(inputs.snapshot)
        high = options.high_seconds or inputs.pool.profile.sla_seconds
        low = min(options.low_seconds or high * _LOW_SHARE, high)
        direction = int(wait > high and inputs.snapshot.waiting > 0) - (wait < low)
        why = f"a mean wait of {wait:.1f} s, of {low:.3g} to {high:.3g} s"
        return step(inputs, options, self.name, direction, why)


def wait_seconds(snapshot: PoolSnapshot) -> float:
    """Mean of the past pickups or of the present ages, whichever is longer."""
    past = snapshot.pickup.mean_seconds if snapshot.pickup and snapshot.pickup.count else 0.0
    if not snapshot.waiting:
        return past
    ages = snapshot.waiting_ages_seconds or (snapshot.oldest_waiting_seconds or 0.0,)
    return max(past, sum(ages) / len(ages))
