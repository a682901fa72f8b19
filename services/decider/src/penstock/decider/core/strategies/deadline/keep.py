"""Selects the surplus workers to keep: those that would soon be needed again."""

from __future__ import annotations

import math

from penstock.decider.core.strategies.deadline.need import last_moment_seconds
from penstock.decider.core.strategies.deadline.passage import idle_seconds
from penstock.decider.core.strategies.deadline.pool_view import PoolView
from penstock.decider.core.strategies.deadline.worker_groups import surely
from penstock.measuring.assumed import LEAST_JOB_SECONDS

_NOTICED_SECONDS = 5.0
"""Added to the run time: jobs that end faster than a few looks change the plan no oftener."""


def kept(view: PoolView, needed: int, price_seconds: float) -> int:
    """The number of workers to keep, no fewer than are needed.

    A worker stays if it would be needed again before its idling has cost as much as starting
    another one and changing the plan: the break-even rule of ski rental (for servers: Gandhi,
    Gupta, Harchol-Balter & Kozuch 2010), with a prediction in place of the wait. More load or a
    tighter promise only ever keeps more workers.

    Args:
        view: the pool.
        needed: workers that are needed now.
        price_seconds: worker-seconds that a change of the plan has to save.
    """
    workers = view.planned
    least = price_seconds + view.spawn.p95_seconds
    while workers > needed and _saved_seconds(view, workers - 1) >= least:
        workers -= 1
    return workers


def price_seconds(view: PoolView, calm: float, change_seconds: float) -> float:
    """Worker-seconds that a change of the plan has to save.

    The number of running jobs changes by chance within about a run time. A share of the pool's work
    in that time, spent on idle workers, costs about that share in all, whatever the pool's size.
    """
    return change_seconds + calm * view.load * (view.service.seconds + _NOTICED_SECONDS)


def _saved_seconds(view: PoolView, workers: int) -> float:
    """Worker-seconds that one more would idle until it is needed again."""
    without_workers = _seconds_without_workers(view)
    if workers <= 0:
        return without_workers
    jobs, most = view.busy + view.waiting, workers + 1 + _longest_line(view, workers)
    return idle_seconds(jobs, most, workers, view.rate, view.service)


def _longest_line(view: PoolView, workers: int) -> float:
    """Jobs that may wait before so many workers are too few.

    The line in which the last job waits until a worker can still be started for it, in the mean; or
    what they surely begin within the promise, where that is more.
    """
    service, promise = view.service, view.promise_seconds
    _, rounds, spread = service.pace(None, promise)
    sure = surely(workers * rounds, spread, view.safety)
    left = promise - last_moment_seconds(view)
    return max(workers * left / max(service.seconds, LEAST_JOB_SECONDS), sure)


def _seconds_without_workers(view: PoolView) -> float:
    """Until a worker has to be started, if there is none."""
    if view.positions:
        first = view.positions[0].seconds
    else:
        gap = 1.0 / view.rate if view.rate > 0 else math.inf
        first = gap + view.promise_seconds
    return max(first - last_moment_seconds(view), 0.0)
