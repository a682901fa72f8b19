"""A schedule made with all arrivals and run times known, and a controller that follows it.

It plans on the fluid of the load, for a promise that is made tighter until no more jobs start late
than are allowed when the real ones, whole and in their order, are run by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from penstock.decider.simulator.bound import step_seconds
from penstock.decider.simulator.controller import Look, Plan
from penstock.decider.simulator.fluid import Fluid, fluid
from penstock.decider.simulator.load import Floats, Load
from penstock.decider.simulator.meter import INTERVAL_SECONDS
from penstock.decider.simulator.stretches import Stretches, backwards, cut, following

_STRETCH_SECONDS = 1200.0
_AHEAD_SECONDS = 120.0
_SPAWN_MARGIN = 1.2
_TIGHTER = (1.0, 0.9, 0.8, 0.65, 0.5, 0.3)
_LATE_PRICE = 1e6


class Scripted:
    """Follows a schedule: workers by time step."""

    def __init__(
        self, schedule: Floats, step_seconds: float, spawn_seconds: float, host: str
    ) -> None:
        self._schedule, self._step, self._host = schedule, step_seconds, host
        self._ahead = math.ceil((spawn_seconds * _SPAWN_MARGIN + INTERVAL_SECONDS) / step_seconds)

    def plan(self, look: Look) -> Plan | None:
        """Whoever is needed by the time that starting one takes is started now."""
        here = int(look.decided_at / self._step)
        soon = self._schedule[here : here + self._ahead + 1]
        left = look.meter.waiting + sum(1 for _ in look.fleet.busy())
        least = 1 if left and not len(soon) else 0
        return {self._host: int(max(soon.max(initial=0.0), least))}


def controller(
    load: Load,
    *,
    sla_seconds: float,
    late_share: float,
    spawn_seconds: float,
    host: str,
    late_share_with: Callable[[Scripted], float],
) -> Scripted:
    """The cheapest schedule tried that keeps the promise.

    Args:
        late_share_with: runs the load with a controller; the share of its jobs that start late.
    """
    step = step_seconds(sla_seconds)
    for tighter in _TIGHTER:
        water = fluid(load, sla_seconds * tighter, step)
        scripted = Scripted(schedule(water, spawn_seconds), step, spawn_seconds, host)
        if late_share_with(scripted) <= late_share:
            break
    return scripted


def schedule(water: Fluid, spawn_seconds: float) -> Floats:
    """Workers in each step, none late by the fluid; shape (K,)."""
    whole = cut(water, math.inf)
    total, found = whole.came.shape[1], np.zeros(whole.came.shape[1])
    length = math.ceil(_STRETCH_SECONDS / water.step_seconds)
    ahead = math.ceil(_AHEAD_SECONDS / water.step_seconds)
    left, workers = 0.0, 0
    for start in range(0, total, length):
        end = min(start + length, total)
        part = _part(whole, start, min(end + ahead, total))
        costs = _costs(part, spawn_seconds)
        for step in range(end - start):
            workers = _best(part, costs[step + 1], step, (left, workers), spawn_seconds)
            done = part.counts[workers] * water.step_seconds
            left = max(left + float(part.came[0, step]) - done, 0.0)
            found[start + step] = part.counts[workers]
    return found


def _part(whole: Stretches, start: int, end: int) -> Stretches:
    return Stretches(
        step_seconds=whole.step_seconds,
        came=whole.came[:, start:end],
        limit=whole.limit[:, start : end + 1],
        due=whole.due[:, start:end],
        shares=whole.shares,
        counts=whole.counts,
    )


def _costs(part: Stretches, spawn_seconds: float) -> list[Floats]:
    """Cost from each step on, and at the end."""
    left = part.shares[None, :, None] * part.limit[:, -1, None, None]
    last = np.broadcast_to(left, (*left.shape[:2], len(part.counts)))
    found = [last, *(cost for _, cost in backwards(part, spawn_seconds, _LATE_PRICE))]
    return found[::-1]


def _best(
    part: Stretches, after: Floats, step: int, state: tuple[float, int], spawn_seconds: float
) -> int:
    """The number of workers (its index) with the least cost from here on."""
    left, workers = state
    todo = np.array([[left + part.came[0, step]]])
    cost = following(part, after, step, todo, _LATE_PRICE)[0, 0]
    new = np.maximum(part.counts - part.counts[workers], 0.0)
    return int(np.argmin(cost + spawn_seconds * new))
