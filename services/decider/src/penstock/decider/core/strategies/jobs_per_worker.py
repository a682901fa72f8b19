"""Strategy `jobs_per_worker`: a worker for every ten waiting jobs, on top of those always there.

    base    = the pool's `min_workers`
    workers = max(base, waiting / per_worker), and no fewer than now while anything waits
    workers = base, once the queue is empty

Those above the base are burst workers: they start in one step and stay until the queue is empty.
(100 jobs and 2 base workers are 50 a worker: 8 burst workers bring that to 10.)

Choose it for a queue that is empty most of the time and then full, with jobs of about one length.
With `policies = ["keep-busy"]` each burst worker goes as soon as the queue is empty and its own job
done.

Weakness: it ignores run time and promise: ten jobs of 0.1 s are a second of work, ten of a minute
are ten minutes. A queue that is never quite empty keeps every burst worker.
"""

from __future__ import annotations

from penstock.config.section import Positive, Section
from penstock.decider.core.strategy import Demand, StrategyInputs, ask, whole


class Options(Section, frozen=True, kw_only=True):
    """Settings.

    Attributes:
        per_worker: waiting jobs that one worker is expected to take.
    """

    per_worker: Positive = 10.0


class JobsPerWorker:
    """See the module."""

    name = "jobs_per_worker"
    options = Options

    def demand(self, inputs: StrategyInputs) -> Demand:
        waiting, base = inputs.snapshot.waiting, inputs.pool.profile.min_workers
        per_worker, figures = inputs.options.per_worker, {"base_workers": base}
        if not waiting:
            return ask(self.name, base, f"the queue is empty, {base} are the base", figures)
        wanted = max(whole(waiting / per_worker), base)
        if wanted < inputs.current:
            why = (
                f"{waiting} waiting, those beyond the base of {base} stay until the queue is empty"
            )
            return ask(self.name, inputs.current, why, figures)
        why = f"{waiting} waiting, {per_worker:g} a worker, {base} at least"
        return ask(self.name, wanted, why, figures)
