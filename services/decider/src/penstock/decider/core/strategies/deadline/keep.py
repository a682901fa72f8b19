"""Selects the surplus workers to keep: those that would soon be needed again."""

from __future__ import annotations

import math

from penstock.decider.core.strategies.deadline.need import last_moment_seconds
from penstock.decider.core.strategies.deadline.pool_view import PoolView
from penstock.measuring.assumed import LEAST_JOB_SECONDS

_BY_TRAFFIC = 2.0
_BY_IDLING = 0.3
"""How many times ``change_seconds`` must be saved: by calculation, and by observed idling."""


_FLAT = 1e-3
"""Below this drift over the whole line it is taken for none, as the formula would cancel out."""
_NEVER = 50.0
"""Above this drift downwards the line never grows so long: its exponential would overflow."""


def kept(view: PoolView, needed: int, most_busy: int, change_seconds: float) -> int:
    """The number of workers to keep, no fewer than are needed.

    A worker stays if it would be needed again before its removal has paid for starting another one
    and for the change: the break-even rule (of ski rental; for servers, Gandhi, Gupta,
    Harchol-Balter & Kozuch 2010). Workers beyond the load idle by calculation; besides those, the
    ones that were not busy lately have been observed to idle. More load or a tighter promise only
    ever keeps more workers.

    Args:
        view: the pool.
        needed: workers that are needed now.
        most_busy: workers that were busy at a time lately.
        change_seconds: worker-seconds that a change has to be worth.
    """
    workers, spawn, load = view.planned, view.spawn.p95_seconds, view.load
    while workers > needed:
        holds = hold_seconds(view, workers - 1)
        idles = workers > load and holds >= _BY_TRAFFIC * change_seconds + spawn
        idled = workers > most_busy and holds >= _BY_IDLING * change_seconds + spawn
        if not (idles or idled):
            break
        workers -= 1
    return workers


def hold_seconds(view: PoolView, workers: int) -> float:
    """For how long so many workers will be enough, in the mean."""
    without_workers = _seconds_without_workers(view)
    if workers <= 0:
        return without_workers
    service = view.service
    mean = service.rounds(view.promise_seconds)
    spread = math.sqrt(service.variance(mean) * workers)
    per_second = workers / max(service.seconds, LEAST_JOB_SECONDS)
    with_workers = passage_seconds(
        line=view.waiting,
        length=workers * mean - view.safety * spread,
        growth=view.rate - per_second,
        variance=view.rate + min(per_second, view.rate) * service.cv2,
    )
    return max(with_workers, without_workers)


def wasted(view: PoolView, workers: int) -> float:
    """Planned workers beyond this number that idle now."""
    return max(view.planned - max(workers, min(view.load, view.busy)), 0.0)


def _seconds_without_workers(view: PoolView) -> float:
    """Until a worker has to be started, if there is none."""
    if view.positions:
        first = view.positions[0].seconds
    else:
        gap = 1.0 / view.rate if view.rate > 0 else math.inf
        first = gap + view.promise_seconds
    return max(first - last_moment_seconds(view), 0.0)


def passage_seconds(line: float, length: float, growth: float, variance: float) -> float:
    """Mean first-passage time of a line from ``line`` to ``length`` jobs; 0 if it is there.

    The line is taken for a Brownian motion that is reflected at 0: short lines come and go by
    chance, long ones by drift (Cox & Miller, *The Theory of Stochastic Processes*, 1965, sec. 5.7;
    the heavy-traffic limit of a queue, Kingman 1962).

    Args:
        line: jobs in it now.
        length: jobs in it then.
        growth: jobs a second by which more come than go; negative where the workers keep up.
        variance: of that number in a second.
    """
    if length <= line:
        return 0.0
    if variance <= 0:
        return (length - line) / growth if growth > 0 else math.inf
    steepness = 2 * growth / variance
    if abs(steepness * length) < _FLAT:
        return (length * length - line * line) / variance
    if -steepness * length > _NEVER:
        return math.inf
    chance = math.exp(-steepness * line) - math.exp(-steepness * length)
    return (length - line) / growth - chance / (steepness * growth)
