"""Strategy `conservative`: workers by rate or by an early drain, whichever is more, plus a quarter.

    rate  = arrivals/s x job seconds
    drain = waiting / max(time left of the oldest / job seconds, 1), once the oldest job has waited
            for half of the promise (`drain_from_share`)
    workers = max(rate, drain) x 1.25 (`headroom_share`)

Choose it where a late job costs far more than an idle worker and traffic has no steep spikes.

Weakness: the headroom is a share. A quarter is far too little for a few workers and too much for
hundreds (a queue needs about the square root of its load beyond it).
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from penstock.config.section import Section
from penstock.decider.core.strategies import work
from penstock.decider.core.strategies.backlog_only import workers_in_time
from penstock.decider.core.strategy import Demand, StrategyInputs, ask


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        headroom_share: what is asked for beyond the need, as a share of it.
        drain_from_share: of the promise: from this age of the oldest job on the queue is drained.
    """

    headroom_share: Annotated[float, Meta(ge=0, le=10)] = 0.25
    drain_from_share: Annotated[float, Meta(ge=0, le=1)] = 0.5


class Conservative:
    """See the module."""

    name = "conservative"
    counts_slots = True
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        snapshot, options = inputs.snapshot, inputs.options
        rate = (snapshot.arrival_per_second or 0.0) * work.job_seconds(snapshot)
        drain = _drain(inputs)
        need = work.with_first(max(rate, drain), snapshot)
        why = f"{need:.3g} by {'the backlog' if drain > rate else 'the rate'}"
        return ask(
            self.name,
            need * (1 + options.headroom_share),
            f"{why}, plus {options.headroom_share:.0%}",
            {"rate_workers": round(rate, 3), "drain_workers": round(drain, 3)},
        )


def _drain(inputs: StrategyInputs) -> float:
    sla_seconds, snapshot = inputs.pool.profile.sla_seconds, inputs.snapshot
    early = (snapshot.oldest_waiting_seconds or 0.0) < sla_seconds * inputs.options.drain_from_share
    return 0.0 if early else workers_in_time(snapshot, sla_seconds)
