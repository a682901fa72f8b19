"""A controller that knows all arrivals and run times.

At each look it takes the step that is cheapest from where it really stands, by dynamic programming
over the fluid of the load. Real jobs are whole and stay in their order, so that the promise that it
plans for is made tighter until no more of them start late than are allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import numpy as np

from penstock.decider.simulator.bound import step_seconds
from penstock.decider.simulator.controller import Look, Plan
from penstock.decider.simulator.fluid import Fluid, fluid
from penstock.decider.simulator.load import Floats, Load
from penstock.decider.simulator.meter import INTERVAL_SECONDS
from penstock.decider.simulator.stretches import Stretches, backwards, cut, following, last_costs

_STRETCH_SECONDS = 1200.0
_AHEAD_SECONDS = 120.0
_SPAWN_MARGIN = 1.1
_TIGHTER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.35, 0.2)
_LATE_PRICE = 1e6


def best(
    load: Load,
    *,
    sla_seconds: float,
    late_share: float,
    spawn_seconds: float,
    host: str,
    late_share_with: Callable[[Clairvoyant], float],
) -> Clairvoyant:
    """The one that plans for the loosest promise that makes it keep the given one.

    Args:
        late_share_with: runs the load with a controller; the share of its jobs that start late.
    """
    step = step_seconds(sla_seconds)
    for tighter in _TIGHTER:
        water = fluid(load, sla_seconds * tighter, step)
        if late_share_with(Clairvoyant(water, spawn_seconds, host)) <= late_share:
            break
    return Clairvoyant(water, spawn_seconds, host)


class Clairvoyant:
    """Plans for the promise that its fluid was made for."""

    def __init__(self, water: Fluid, spawn_seconds: float, host: str) -> None:
        self._water, self._spawn, self._host = water, spawn_seconds, host
        self._whole = cut(water, math.inf)
        self._horizon = spawn_seconds * _SPAWN_MARGIN + INTERVAL_SECONDS
        self._future = _Future(self._whole, spawn_seconds)
        self._workers = 0

    def plan(self, look: Look) -> Plan | None:
        """Who is needed now stays; who is needed by the time that starting one takes starts now."""
        now, step = look.now, self._water.step_seconds
        here = self._index(now)
        left = self._water.possible[here] - look.meter.worked_seconds(now)
        stay = self._future.choice(here, left, self._workers)
        then = self._index(now + self._horizon)
        came = self._water.possible[then] - self._water.possible[here]
        done = self._whole.counts[stay] * (then - here) * step
        more = self._future.choice(then, left + came - done, stay)
        self._workers = max(stay, more)
        return {self._host: int(self._whole.counts[self._workers])}

    def _index(self, now: float) -> int:
        return min(int(now / self._water.step_seconds), len(self._water.due) - 1)


class _Future(msgspec.Struct):
    """What every state will cost, computed a stretch at a time as it is reached."""

    whole: Stretches
    spawn_seconds: float
    start: int = 0
    end: int = 0
    part: Stretches | None = None
    costs: list[Floats] = []

    def choice(self, step: int, left: float, workers: int) -> int:
        """The number of workers (its index) that is cheapest from here on."""
        if not self.start <= step < self.end:
            self._reach(step)
        part = self.part
        assert part is not None
        here = step - self.start
        todo = np.array([[max(left, 0.0) + part.came[0, here]]])
        cost = following(part, self.costs[here + 1], here, todo, _LATE_PRICE)[0, 0]
        new = np.maximum(part.counts - part.counts[workers], 0.0)
        return int(np.argmin(cost + self.spawn_seconds * new))

    def _reach(self, step: int) -> None:
        total, seconds = self.whole.came.shape[1], self.whole.step_seconds
        self.start, self.end = step, min(step + math.ceil(_STRETCH_SECONDS / seconds), total)
        until = min(self.end + math.ceil(_AHEAD_SECONDS / seconds), total)
        part = self.whole.between(step, until)
        costs = [cost for _, cost in backwards(part, self.spawn_seconds, _LATE_PRICE)]
        self.part, self.costs = part, [*costs[::-1], last_costs(part)]
