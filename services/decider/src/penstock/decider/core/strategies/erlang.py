"""Workers that steady traffic needs: Erlang's delay formula, its tail, and the search.

Load is in Erlang: jobs that run at a time if none has to wait, rate x service time. With c workers
and load a, a job has to wait with probability C(c, a) (A. K. Erlang 1917), and waits longer than T
with probability

    C(c, a) · exp(-(c - a) · T/s · 2/(1 + cv²))

exact for exponential service times (cv² = 1); for others the wait is stretched by their variance,
as the mean wait is (Lee & Longton 1959; Kimura, "Approximations for multi-server queues", 1994).
"""

from __future__ import annotations

import math

_TINY = 1e-13
_STEEPEST_BETA = 8.0
_BISECTIONS = 9
_SMALL_LOAD = 9.0
"""Below it, counting up from the load is quicker than finding a better start."""


def erlang_b(workers: int, load: float) -> float:
    """Share of jobs that find every worker busy if none of them waits (blocking)."""
    return 1.0 / _inverse_b(workers, load) if load > 0 else float(workers == 0)


def erlang_c(workers: int, load: float) -> float:
    """Share of jobs that have to wait at all; 1 where the workers cannot keep up."""
    if load <= 0:
        return float(workers == 0)
    if workers <= load:
        return 1.0
    return _delayed(_inverse_b(workers, load), load / workers)


def late_share(
    workers: int, load: float, service_seconds: float, cv2: float, promise_seconds: float
) -> float:
    """Share of jobs that wait longer than the promise.

    Args:
        load: in Erlang.
        service_seconds: mean.
        cv2: variance over squared mean.
    """
    delayed = erlang_c(workers, load)
    if workers <= load or delayed == 0:
        return delayed
    return delayed * math.exp(-(workers - load) * _haste(service_seconds, cv2, promise_seconds))


def fewest(
    load: float, service_seconds: float, cv2: float, promise_seconds: float, allowed_share: float
) -> int:
    """The smallest number of workers with which no more than the allowed share waits longer.

    The square-root rule's answer (Halfin & Whitt 1981) is right to about one worker; the exact
    formula goes on from there, a step at a time.

    Args:
        allowed_share: of jobs, in (0, 1).
    """
    if load <= 0:
        return 0
    haste = _haste(service_seconds, cv2, promise_seconds)
    beta = _beta(load, haste, allowed_share) if load > _SMALL_LOAD else 0.0
    workers = math.floor(load + beta * math.sqrt(load))
    # with no more workers than the load the queue grows without bound
    workers = max(workers, math.floor(load) + 1)
    inverse = _inverse_b(workers, load)
    while _late(workers, load, inverse, haste) > allowed_share:
        workers += 1
        inverse = 1.0 + workers / load * inverse
    while workers - 1 > load:
        fewer = (inverse - 1.0) * load / workers
        if _late(workers - 1, load, fewer, haste) > allowed_share:
            break
        workers, inverse = workers - 1, fewer
    return workers


def _haste(service_seconds: float, cv2: float, promise_seconds: float) -> float:
    """The wait's rate of decay for each worker beyond the load, times the promise."""
    return promise_seconds / service_seconds * 2.0 / (1.0 + cv2) if service_seconds > 0 else 1e9


def _late(workers: int, load: float, inverse_b: float, haste: float) -> float:
    return _delayed(inverse_b, load / workers) * math.exp(-(workers - load) * haste)


def _delayed(inverse_b: float, utilisation: float) -> float:
    return 1.0 / (inverse_b * (1.0 - utilisation) + utilisation)


def _inverse_b(workers: int, load: float) -> float:
    """1/B(c, a) = 1 + c/a + c(c-1)/a² + …; its terms die out after some square roots of c."""
    total = term = 1.0
    for left in range(workers, 0, -1):
        term *= left / load
        total += term
        if left < load and term < _TINY * total:
            break
    return total


def _beta(load: float, haste: float, allowed_share: float) -> float:
    """The square-root rule's safety, by bisection: workers = load + beta x root of the load."""
    root, low, high = math.sqrt(load), 0.0, _STEEPEST_BETA
    for _ in range(_BISECTIONS):
        beta = (low + high) / 2
        density = math.exp(-beta * beta / 2)
        below = math.sqrt(math.pi / 2) * (1.0 + math.erf(beta / math.sqrt(2)))
        delayed = density / (density + beta * below)
        if delayed * math.exp(-beta * root * haste) > allowed_share:
            low = beta
        else:
            high = beta
    return low
