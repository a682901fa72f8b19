"""A controller that knows all arrivals and run times.

At each look it takes the step that is cheapest from where it really stands, by dynamic programming
over the fluid of the load; real jobs are whole and stay in their order, so that it then walks the
queue and adds the workers that are missing for jobs that would start late. As it can act at looks
only, the promise that it plans for is made tighter until no more jobs start late than are allowed.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from heapq import heapify, heapreplace
from operator import itemgetter

import msgspec
import numpy as np

from penstock.decider.simulator.bounds.bound import step_seconds
from penstock.decider.simulator.bounds.fluid import fluid
from penstock.decider.simulator.bounds.stretches import (
    Stretches,
    backwards,
    cut,
    following,
    last_costs,
)
from penstock.decider.simulator.model.controller import Look, Plan
from penstock.decider.simulator.model.engine import Run
from penstock.decider.simulator.model.fleet import STARTING, Worker
from penstock.decider.simulator.model.load import Floats, Load
from penstock.decider.simulator.model.meter import INTERVAL_SECONDS

_STRETCH_SECONDS = 1200.0
_AHEAD_SECONDS = 120.0
_SPAWN_MARGIN = 1.1
_TIGHTER = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)
_LATE_PRICE = 1e6


def best(
    load: Load,
    *,
    sla_seconds: float,
    late_share: float,
    spawn_seconds: float,
    host: str,
    run: Callable[[Clairvoyant], Run],
) -> Run:
    """The run that plans for the loosest promise that makes it keep the given one, else the best.

    Args:
        run: runs the load with a controller.
    """
    runs: list[tuple[float, Run]] = []
    for tighter in _TIGHTER:
        tried = run(Clairvoyant(load, sla_seconds * tighter, spawn_seconds, host))
        late = sum(wait > sla_seconds for wait in tried.waits) / max(len(tried.waits), 1)
        runs.append((late, tried))
        if late <= late_share:
            break
    return min(runs, key=itemgetter(0))[1]


class Clairvoyant:
    """Plans for a promise with everything known. Times are seconds since the start.

    Args:
        start_price: worker-seconds that starting a worker costs besides its time: the higher, the
            fewer changes of the plan.
    """

    def __init__(
        self,
        load: Load,
        sla_seconds: float,
        spawn_seconds: float,
        host: str,
        start_price: float = 0.0,
    ) -> None:
        self._load, self._sla, self._host = load, sla_seconds, host
        self._water = fluid(load, sla_seconds, step_seconds(sla_seconds))
        self._whole = cut(self._water, math.inf)
        self._spawn = spawn_seconds * _SPAWN_MARGIN
        self._horizon = self._spawn + INTERVAL_SECONDS
        self._future = _Future(self._whole, spawn_seconds + start_price)
        self._workers = 0

    def plan(self, look: Look) -> Plan | None:
        """Keeps the workers needed now, and starts those needed when a new one would be ready."""
        now, step = look.now, self._water.step_seconds
        here = self._index(now)
        left = self._water.possible[here] - look.meter.worked_seconds(now)
        stay = self._future.choice(here, left, self._workers)
        then = self._index(now + self._horizon)
        came = self._water.possible[then] - self._water.possible[here]
        done = self._whole.counts[stay] * (then - here) * step
        later = self._future.choice(then, left + came - done, stay)
        cheapest = int(self._whole.counts[max(stay, later)])
        enough = self._enough(look, cheapest)
        self._workers = int(np.searchsorted(self._whole.counts, enough).clip(max=self._last))
        return {self._host: enough}

    @property
    def _last(self) -> int:
        return len(self._whole.counts) - 1

    def _index(self, now: float) -> int:
        return min(int(now / self._water.step_seconds), len(self._water.due) - 1)

    def _enough(self, look: Look, count: int) -> int:
        """So many workers, or as many more as it takes for no job to start late that could still
        be helped now and could not at the next look."""
        free = self._free(look)
        first = look.meter.arrived - look.meter.waiting
        until = bisect_right(self._load.arrivals, look.now + self._horizon - self._sla, lo=first)
        starting = look.decided_at + self._spawn
        while not self._in_time(free, count, starting, range(first, until)):
            count += 1
        return count

    def _free(self, look: Look) -> list[float]:
        """When each worker could take its next job, in the order in which they would be kept."""
        workers = sorted(look.fleet.active(), key=lambda worker: (-worker.phase, worker.asked_at))
        return [self._free_at(worker, look.now) for worker in workers]

    def _free_at(self, worker: Worker, now: float) -> float:
        if worker.phase == STARTING:
            return worker.asked_at + self._spawn
        [slot] = worker.slots
        return now if slot.job < 0 else slot.since + self._load.services[slot.job]

    def _in_time(self, free: list[float], count: int, starting: float, jobs: range) -> bool:
        """No job starts late with the first ``count`` workers, new ones ready at ``starting``.

        A job that is late whatever is started now does not count.
        """
        line = free[:count] + [starting] * (count - len(free))
        heapify(line)
        for job in jobs:
            arrival = self._load.arrivals[job]
            start = max(line[0], arrival) if line else math.inf
            if start > max(arrival + self._sla, starting):
                return False
            heapreplace(line, start + self._load.services[job])
        return True


class _Future(msgspec.Struct):
    """The future cost of every state, computed a stretch at a time when it is needed."""

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
