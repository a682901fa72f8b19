"""How long until a line of jobs has grown to some length: mean first-passage time."""

from __future__ import annotations

import math

_FLAT = 1e-3
_NEVER = 50.0


def passage_seconds(line: float, room: float, growth: float, variance: float) -> float:
    """Mean time in which a line grows from ``line`` jobs to ``room``; 0 if it is there.

    The line is taken for a Brownian motion that is reflected at 0: short lines come and go by
    chance, long ones by drift (Cox & Miller, *The Theory of Stochastic Processes*, 1965, sec. 5.7;
    the heavy-traffic limit of a queue, Kingman 1962).

    Args:
        growth: jobs a second by which more come than go; negative where the workers keep up.
        variance: of that number in a second.
    """
    if room <= line:
        return 0.0
    if variance <= 0:
        return (room - line) / growth if growth > 0 else math.inf
    steepness = 2 * growth / variance
    if abs(steepness * room) < _FLAT:
        return (room * room - line * line) / variance
    if -steepness * room > _NEVER:
        return math.inf
    chance = math.exp(-steepness * line) - math.exp(-steepness * room)
    return (room - line) / growth - chance / (steepness * growth)
