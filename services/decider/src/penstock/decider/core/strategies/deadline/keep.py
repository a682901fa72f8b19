"""Which of the workers that are not needed now are kept: those that would soon be needed again."""

from __future__ import annotations

import math

from penstock.decider.core.strategies.deadline.need import last_moment_seconds
from penstock.decider.core.strategies.deadline.passage import passage_seconds
from penstock.decider.core.strategies.deadline.pool_view import Sight

_BY_TRAFFIC = 2.0
_BY_IDLING = 0.3
"""How many changes' worth of time must be won: by reckoning, and where it was seen to idle."""


def kept(sight: Sight, needed: int, most_busy: int, change_seconds: float) -> int:
    """How many stay, no fewer than are needed.

    One worker after the other is asked whether it would be needed again before its going has paid
    for starting another one and for the change: the break-even rule (of ski rental; for servers,
    Gandhi, Gupta, Harchol-Balter & Kozuch 2010). With more workers than the load a worker idles by
    reckoning; besides that, those idle that were not busy lately. Each answer only ever turns to
    "stays" with more load or a tighter promise, and so does the number.

    Args:
        most_busy: workers that were busy at a time lately. change_seconds: worker-seconds that a
            change has to be worth.
    """
    workers, spawn, load = sight.planned, sight.spawn.p95_seconds, sight.load
    while workers > needed:
        holds = hold_seconds(sight, workers - 1)
        idles = workers > load and holds >= _BY_TRAFFIC * change_seconds + spawn
        idled = workers > most_busy and holds >= _BY_IDLING * change_seconds + spawn
        if not (idles or idled):
            break
        workers -= 1
    return workers


def hold_seconds(sight: Sight, workers: int) -> float:
    """For how long so many workers will be enough, in the mean."""
    nobody = _nobody_seconds(sight)
    if workers <= 0:
        return nobody
    service = sight.service
    mean = service.rounds(sight.promise_seconds)
    spread = math.sqrt(service.variance(mean) * workers)
    per_second = workers / max(service.seconds, 1e-6)
    some = passage_seconds(
        line=sight.waiting,
        room=workers * mean - sight.safety * spread,
        growth=sight.rate - per_second,
        variance=sight.rate + min(per_second, sight.rate) * service.cv2,
    )
    return max(some, nobody)


def wasted(sight: Sight, workers: int) -> float:
    """Workers that idle now for being more than this."""
    return max(sight.planned - max(workers, min(sight.load, sight.busy)), 0.0)


def _nobody_seconds(sight: Sight) -> float:
    """Until somebody has to be started, if nobody is there."""
    if sight.stands:
        first = sight.stands[0].seconds
    else:
        gap = 1.0 / sight.rate if sight.rate > 0 else math.inf
        first = gap + sight.promise_seconds
    return max(first - last_moment_seconds(sight), 0.0)
