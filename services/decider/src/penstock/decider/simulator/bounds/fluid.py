"""The work of a load as a fluid: what could be done by when, and what has to be.

With a worker for each job at once, the work done by time t would be A(t): each job from its arrival
at one second a second. If every job starts within T, at least A(t - T) is done by t. Whatever any
autoscaler does lies in between.
"""

from __future__ import annotations

import msgspec
import numpy as np

from penstock.decider.simulator.model.load import Floats, Load

_MOST_STEPS = 4_000_000
"""A longer load has a coarser grid, as memory grows with the steps: 60 bytes each."""


class Fluid(msgspec.Struct, frozen=True, kw_only=True):
    """On a grid of times 0, step, 2 step, … (``K`` + 1 of them).

    Attributes:
        possible: A(t), worker-seconds, shape (K + 1,).
        limit: A(t) - A(t - T): work that may be left undone at most, shape (K + 1,).
        due: jobs whose time to start ended within the step before, shape (K,): if they were started
            in time, no more than the limit is left at the step's end.
    """

    step_seconds: float
    possible: Floats
    limit: Floats
    due: Floats


def fluid(load: Load, sla_seconds: float, step_seconds: float) -> Fluid:
    """The fluid of a load, until everything could have been done and had to be started.

    Args:
        load: the jobs.
        sla_seconds: the promise.
        step_seconds: of the grid; longer ones where there would be too many.
    """
    arrivals = np.asarray(load.arrivals)
    ends = arrivals + np.asarray(load.services)
    last = max(load.duration_seconds, float(ends.max(initial=0.0))) + sla_seconds
    step_seconds = max(step_seconds, last / _MOST_STEPS)
    grid = np.arange(0.0, last + 2 * step_seconds, step_seconds)
    ends.sort()
    possible = _ramps(arrivals, grid) - _ramps(ends, grid)
    required = _ramps(arrivals, grid - sla_seconds) - _ramps(ends, grid - sla_seconds)
    before = np.searchsorted(arrivals, grid - sla_seconds - step_seconds, side="right")
    return Fluid(
        step_seconds=step_seconds,
        possible=possible,
        limit=possible - required,
        due=np.diff(before).astype(np.float64),
    )


def _ramps(points: Floats, grid: Floats) -> Floats:
    """Sum over sorted points of max(t - point, 0), at each t of the grid."""
    counts = np.searchsorted(points, grid, side="right")
    sums = np.concatenate(([0.0], np.cumsum(points)))[counts]
    return counts * grid - sums
