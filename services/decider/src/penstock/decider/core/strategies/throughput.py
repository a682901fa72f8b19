"""Strategy `throughput`: capacity to finish so many jobs a minute while there is any work.

    workers = jobs_per_minute / 60 x job seconds; none while no job waits, runs or arrives

Choose it where the pace is agreed: a nightly run that has to be done by morning, or a service
behind the jobs that allows only so many calls. Take `keep-busy` out of `policies` for that: while a
backlog lasts every worker is busy, and none would be removed.

Weakness: it ignores arrivals and waits. The target is paid for when fewer jobs arrive, and never
exceeded when more do.
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
    counts_slots = True
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        snapshot, pace = inputs.snapshot, inputs.options.jobs_per_minute
        if not work.is_there(snapshot):
            return ask(self.name, 0, "there is nothing to do")
        seconds = work.job_seconds(snapshot)
        why = f"{pace:g} jobs a minute, {seconds:.3g} s a job"
        return ask(self.name, max(pace / 60 * seconds, 1.0), why, {"job_seconds": seconds})
