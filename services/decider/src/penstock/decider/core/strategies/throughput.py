"""Strategy `throughput`: capacity to finish so many jobs a minute while there is any work.

    workers = jobs_per_minute / 60 x job seconds; none while nothing waits, runs or comes

Choose it where the pace is what was agreed: a nightly run that has to be through by morning, or a
service behind the jobs that bears no more than so many calls. Take `keep-busy` out of `policies`
for that: while a backlog lasts every worker is busy, and none would go.

Weakness: it asks neither how many come nor how long they wait. The target is paid for when less
comes, and never exceeded when more does.
"""

from __future__ import annotations

from penstock.config.section import Positive, Section
from penstock.decider.core.strategies import work
from penstock.decider.core.strategy import Demand, StrategyInputs, ask


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        jobs_per_minute: the pace the pool is to be able to keep.
    """

    jobs_per_minute: Positive = 100.0


class Throughput:
    """See the module."""

    name = "throughput"
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        snapshot, pace = inputs.snapshot, inputs.options.jobs_per_minute
        if not work.is_there(snapshot):
            return ask(self.name, 0, "there is nothing to do")
        seconds = work.job_seconds(snapshot)
        why = f"{pace:g} jobs a minute, {seconds:.3g} s a job"
        return ask(self.name, max(pace / 60 * seconds, 1.0), why, {"job_seconds": seconds})
