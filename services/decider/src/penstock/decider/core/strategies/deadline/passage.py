"""First passage of the jobs in a pool: for how long one more worker would idle.

Jobs that wait or run are a birth-death process: one more at the rate of arrivals, one less for each
busy worker and run time. The mean time from k to k + 1 jobs follows from that from k - 1 to k:

    t(k) = (1 + down(k) · t(k - 1)) / up(k)

(Karlin & Taylor, *A First Course in Stochastic Processes*, 1975, ch. 4), exact for exponential run
times. Others get rates of the same drift and variance, and long lines a coarser lattice (the Markov
chain approximation of Kushner & Dupuis, 1992), so that a passage takes some 40 steps at most.
"""

from __future__ import annotations

import math

from penstock.decider.core.strategies.deadline.worker_groups import Service
from penstock.measuring.assumed import LEAST_JOB_SECONDS

_CELLS_BELOW = 12
_CELLS_ABOVE = 24
_NEVER_SECONDS = 1e7
_TINY = 1e-9


def idle_seconds(jobs: float, most: float, workers: int, rate: float, service: Service) -> float:
    """Mean time with no job in line, before there are ``most`` jobs.

    In that time a further worker would idle: this is what its removal saves. It falls with more
    jobs and a higher rate, and grows with ``most``.

    Args:
        jobs: that run or wait now.
        most: at which another worker is needed.
        workers: without the further one.
        rate: jobs a second.
        service: how long jobs run.
    """
    if jobs >= most:
        return 0.0
    if rate <= 0:
        return math.inf
    per_second = 1.0 / max(service.seconds, LEAST_JOB_SECONDS)
    below = max(1.0, workers / _CELLS_BELOW)
    above = max(1.0, (most - workers) / _CELLS_ABOVE)
    at, lower, step, total = 0.0, below, 0.0, 0.0
    while at < most - _TINY:
        upper = min(below, workers - at) if at < workers - _TINY else min(above, most - at)
        done = min(at, workers) * per_second
        up, down = _rates(rate - done, rate + done * service.cv2, lower, upper)
        if at <= 0:
            up, down = rate / upper, 0.0
        in_line = at >= workers + 1 - _TINY
        step = ((0.0 if in_line else 1.0) + down * step) / up if up > 0 else math.inf
        if step > _NEVER_SECONDS:
            return math.inf
        total += step * min(max((at + upper - jobs) / upper, 0.0), 1.0)
        at, lower = at + upper, upper
    return total


def _rates(drift: float, variance: float, lower: float, upper: float) -> tuple[float, float]:
    """Rates of a step up and a step down, of these sizes, with this drift and variance."""
    up = (variance + drift * lower) / (upper * (lower + upper))
    down = (variance - drift * upper) / (lower * (lower + upper))
    if down < 0:
        return drift / upper, 0.0
    return max(up, 0.0), down
