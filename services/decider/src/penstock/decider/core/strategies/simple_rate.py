"""Strategy `simple_rate`: as many workers as jobs run at a time (Little's law), nothing else.

    workers = arrivals/s x job seconds, at least 1 while a job waits

Choose it for steady traffic and a promise much longer than the run time, where a stable number
counts more than the last late job.

Weakness: no headroom. At exactly this number a queue is critically loaded (at 10 Erlang, 68 % of
the jobs wait), and a backlog stays: only the rounding up works it off.
"""

from __future__ import annotations

from penstock.decider.core.strategies import work
from penstock.decider.core.strategy import Demand, StrategyInputs, ask


class SimpleRate:
    """See the module."""

    name = "simple_rate"
    counts_slots = True

    def demand(self, inputs: StrategyInputs) -> Demand:
        snapshot = inputs.snapshot
        rate, seconds = snapshot.arrival_per_second or 0.0, work.job_seconds(snapshot)
        return ask(
            self.name,
            work.with_first(rate * seconds, snapshot),
            f"{rate:.3g} jobs/s, {seconds:.3g} s a job",
            {"arrival_per_second": rate, "job_seconds": seconds},
        )
