"""Strategy `backlog_only`: workers for the jobs in the queue; future arrivals do not count.

    workers = waiting / max(time left of the oldest / job seconds, 1)

Each worker is counted for the jobs that it can take before the oldest one is late, and for one job
from then on.

Choose it for batches that arrive at once, where idle workers are expensive.

Weakness: it never holds a worker for the next job, so at a steady rate it lets the queue grow and
drains it again, and each job that arrives at an empty pool waits for a worker to start. Once jobs
are late it asks for one worker a job, however short they are: keep `max_workers` sensible.
"""

from __future__ import annotations

from penstock.decider.core.strategies import work
from penstock.decider.core.strategy import Demand, StrategyInputs, ask
from penstock.events.snapshot import PoolSnapshot
from penstock.measuring.assumed import LEAST_JOB_SECONDS


class BacklogOnly:
    """See the module."""

    name = "backlog_only"
    counts_slots = True

    def demand(self, inputs: StrategyInputs) -> Demand:
        snapshot, sla_seconds = inputs.snapshot, inputs.pool.profile.sla_seconds
        left, seconds = left_seconds(snapshot, sla_seconds), work.job_seconds(snapshot)
        return ask(
            self.name,
            workers_in_time(snapshot, sla_seconds),
            f"{snapshot.waiting} waiting, {left:.1f} s left for the oldest, {seconds:.3g} s a job",
            {"left_seconds": left, "job_seconds": seconds},
        )


def workers_in_time(snapshot: PoolSnapshot, sla_seconds: float) -> float:
    """Workers that start all waiting jobs before the oldest one is late; then one a job."""
    job_seconds = max(work.job_seconds(snapshot), LEAST_JOB_SECONDS)
    per_worker = left_seconds(snapshot, sla_seconds) / job_seconds
    return work.with_first(snapshot.waiting / max(per_worker, 1.0), snapshot)


def left_seconds(snapshot: PoolSnapshot, sla_seconds: float) -> float:
    """Until the oldest waiting job is late; an unknown age counts as none."""
    oldest = snapshot.oldest_waiting_seconds if snapshot.waiting else 0.0
    return max(sla_seconds - (oldest or 0.0), 0.0)
