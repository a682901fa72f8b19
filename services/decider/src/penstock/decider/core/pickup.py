"""Expected pickup times, given a number of workers."""

from __future__ import annotations

import msgspec

from penstock.events.snapshot import PoolSnapshot
from penstock.measuring.assumed import LEAST_JOB_SECONDS, UNKNOWN_JOB_SECONDS, UNKNOWN_SPAWN_SECONDS

_FAR_SLOWER = 3.0
"""Jobs end this many times slower than their run time allows: something else holds them up."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Expected waits in seconds; None where no worker would ever pick the job up.

    Attributes:
        arriving_seconds: of a job arriving now.
        oldest_seconds: of the oldest waiting job, the time it has waited already included.
    """

    arriving_seconds: float | None
    oldest_seconds: float | None

    @property
    def worst_seconds(self) -> float | None:
        arriving, oldest = self.arriving_seconds, self.oldest_seconds
        if arriving is None or oldest is None:
            return oldest if arriving is None else arriving
        return max(arriving, oldest)


def held_up_seconds(snapshot: PoolSnapshot, promise_seconds: float) -> float | None:
    """A worker's time for each job that really ended, where jobs are late although their run time
    would allow far more to end: the broker, the event log or the host binds, not the jobs.

    Returns:
        None where the oldest waiting job is not late, where too little is measured, and where jobs
        end about as fast as their run time allows.
    """
    done, ready = snapshot.throughput_per_second, snapshot.workers_ready
    if not snapshot.waiting or not done or not ready or snapshot.service is None:
        return None
    if (snapshot.oldest_waiting_seconds or 0.0) <= promise_seconds:
        return None
    seconds = ready / done
    return seconds if seconds >= _FAR_SLOWER * snapshot.service.mean_seconds else None


def outlook(snapshot: PoolSnapshot, workers: int, promise_seconds: float) -> Outlook:
    """Waits if the pool is given ``workers``.

    Ready workers beyond that are on their way out; workers beyond the ready ones take a first job
    one spawn time from now. Where jobs are late and held up, they go on as slowly as they ended.
    """
    measured = snapshot.service
    job_seconds = held_up_seconds(snapshot, promise_seconds)
    if job_seconds is None:
        job_seconds = max(
            measured.mean_seconds if measured else UNKNOWN_JOB_SECONDS, LEAST_JOB_SECONDS
        )
    arriving = _wait_seconds(snapshot, workers, snapshot.waiting + 1, job_seconds)
    oldest = None
    if snapshot.waiting and snapshot.oldest_waiting_seconds is not None:
        first = _wait_seconds(snapshot, workers, 1, job_seconds)
        # without any worker the wait is unknown: at least as long as it has lasted
        oldest = snapshot.oldest_waiting_seconds + (first or 0.0)
    return Outlook(arriving_seconds=arriving, oldest_seconds=oldest)


def _wait_seconds(
    snapshot: PoolSnapshot, workers: int, position: int, job_seconds: float
) -> float | None:
    """Time until the waiting job at this position in the queue is picked up.

    Pickups by time t: the idle at once, each ready worker one more every job time, each starting
    worker its first after the spawn time and one more every job time from then on.
    """
    if workers <= 0:
        return None
    ready = snapshot.workers_ready if snapshot.workers_ready < workers else workers
    idle = snapshot.workers_idle if snapshot.workers_idle < ready else ready
    if position <= idle:
        return 0.0
    spawn_seconds = snapshot.spawn.mean_seconds if snapshot.spawn else UNKNOWN_SPAWN_SECONDS
    left = position - idle
    by_ready = left * job_seconds / ready if ready else float("inf")
    # the ready workers are there before a new one could help
    if workers == ready or by_ready <= spawn_seconds:
        return by_ready
    left_then = left - ready * spawn_seconds / job_seconds - (workers - ready)
    return spawn_seconds + max(left_then, 0.0) * job_seconds / workers
