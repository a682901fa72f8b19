"""Discrete events: jobs arrive, wait in line, run; workers start and end; a controller decides."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

import msgspec

from penstock.config import Profile
from penstock.decider.simulator.model.controller import Controller, Look, Plan
from penstock.decider.simulator.model.fleet import Fleet, Slot, Worker
from penstock.decider.simulator.model.load import Load
from penstock.decider.simulator.model.looks import Looks, Pace
from penstock.decider.simulator.model.meter import Meter
from penstock.decider.simulator.model.spawning import Latencies, Spawning

HOST: Final = "simulated"
POOL: Final = "simulated"
DECISION_SECONDS = 0.05
"""From a look at the queue to the command that follows from it."""
CLAIM_SECONDS = 4.0
"""After which the jobs of a lost host are waiting again."""
_PATIENCE_SECONDS = 3600.0
"""Jobs that no worker took this long after the trace's end are given up."""

_AGES = 5
_LOOKS_A_REPORT = 256
"""Looks between two reports of the progress."""
Progress = Callable[[float], None]
"""Takes the share that is done."""
_Act = Callable[[Any, float], None]
"""A simulated event: called with its object and its time."""


def no_progress(_: float) -> None:
    """Takes the share and does nothing."""


class Troubles(msgspec.Struct, frozen=True, kw_only=True):
    """Faults during a simulation. Times are seconds since the simulation's start.

    Attributes:
        hosts_lost: host and when it vanishes.
        telemetry_gaps: when nothing is measured, from and to.
    """

    hosts_lost: Mapping[str, float] = {}
    telemetry_gaps: tuple[tuple[float, float], ...] = ()

    def has_telemetry_gap(self, now: float) -> bool:
        return any(start <= now < end for start, end in self.telemetry_gaps)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a simulation.

    Attributes:
        waits: seconds from arrival to start of each job, in order of arrival; of one that never
            started, its age in the end, and it is one of ``unstarted``.
        worker_seconds: starting and draining included.
        actions: commands that changed something.
        reversals: those in the other direction than the one before.
    """

    waits: list[float]
    unstarted: int
    worker_seconds: float
    actions: int
    reversals: int
    ended_at: float


class Simulation:
    """One load, one controller, one seed.

    Args:
        profile: whose promise is measured.
        hosts: names of the machines.
        slowing: how many times as long a job takes that begins while so many run; what workers
            share (a database, a disk) as a knob.
        pace: how often the pool is looked at; else as in production.
        slots: how many jobs a worker runs at a time.
        progress: called now and then with the share of the load that is over.
    """

    def __init__(
        self,
        load: Load,
        controller: Controller,
        *,
        spawning: Spawning,
        profile: Profile | None = None,
        seed: int = 0,
        hosts: tuple[str, ...] = (HOST,),
        troubles: Troubles | None = None,
        slowing: Callable[[int], float] | None = None,
        pace: Pace | None = None,
        slots: int = 1,
        progress: Progress = no_progress,
    ) -> None:
        pace, profile = pace or Pace(), profile or Profile()
        self._load, self._controller, self._hosts = load, controller, hosts
        self._troubles, self._slowing = troubles or Troubles(), slowing
        self._fleet = Fleet(Latencies(spawning, seed), slots)
        self._meter = Meter(
            POOL, self._fleet, profile, load.origin, load.curve, pace.interval_seconds
        )
        self._least = profile.min_workers
        self._progress, self._looked = progress, 0
        self._looks = Looks(pace)
        self._waiting: deque[int] = deque()
        self._waits = [math.nan] * len(load.arrivals)
        self._running = 0
        self._events: list[tuple[float, int, _Act, Any]] = []
        self._order = count()
        self._plan: Plan = {}
        self._actions = self._reversals = self._direction = 0
        for host, at in self._troubles.hosts_lost.items():
            self._at(at, self._lose, host)

    def run(self) -> Run:
        """From the first arrival to the end of the trace and of the last job."""
        arrivals, events, looks = self._load.arrivals, self._events, self._looks
        arrivals_end, next_job = len(arrivals), 0
        give_up = self._load.duration_seconds + _PATIENCE_SECONDS
        now, arrival = 0.0, arrivals[0] if arrivals else math.inf
        while True:
            event = events[0][0] if events else math.inf
            if arrival <= event and arrival <= looks.next_at:
                now = arrival
                self._arrive(next_job, now)
                next_job += 1
                arrival = arrivals[next_job] if next_job < arrivals_end else math.inf
            elif event <= looks.next_at:
                now, _, act, what = heappop(events)
                act(what, now)
            else:
                now = looks.next_at
                over = arrival == math.inf and now >= self._load.duration_seconds
                if over and (not (self._waiting or self._running) or now > give_up):
                    return self._result(now)
                self._look(now)

    # --- what happens ----------------------------------------------------------------------------
    def _arrive(self, job: int, now: float) -> None:
        self._meter.arrived += 1
        if not self._begin(job, now):
            self._waiting.append(job)
        self._looks.arrived(now)

    def _begin(self, job: int, now: float) -> bool:
        """False if no worker is idle."""
        slot = self._fleet.take(job, now)
        if slot is None:
            return False
        wait = now - self._load.arrivals[job]
        if math.isnan(self._waits[job]):  # else it was lost with its host and starts again
            self._waits[job] = wait
        self._meter.picked_up(wait, now)
        self._running += 1
        seconds = self._load.services[job]
        if self._slowing is not None:
            seconds *= self._slowing(self._running)
        self._at(now + seconds, self._finish, (slot, job))
        return True

    def _begin_next(self, now: float) -> None:
        if self._waiting and self._begin(self._waiting[0], now):
            self._waiting.popleft()

    def _ready(self, worker: Worker, now: float) -> None:
        if self._fleet.became_ready(worker, now):
            self._meter.spawned(now - worker.asked_at, worker.together, now)
            for _ in worker.slots:
                self._begin_next(now)

    def _finish(self, done: tuple[Slot, int], now: float) -> None:
        slot, job = done
        if slot.job != job:  # lost with its host meanwhile
            return
        self._running -= 1
        self._meter.took(now - slot.since, now)
        if self._fleet.finish(slot, now):
            self._begin_next(now)

    def _lose(self, host: str, now: float) -> None:
        self._hosts = tuple(name for name in self._hosts if name != host)
        for job in self._fleet.lose(host, now):
            self._at(now + CLAIM_SECONDS, self._wait_again, job)

    def _wait_again(self, job: int, now: float) -> None:
        self._running -= 1
        self._waiting.appendleft(job)
        self._begin_next(now)

    # --- deciding --------------------------------------------------------------------------------
    def _look(self, now: float) -> None:
        self._looked += 1
        if not self._looked % _LOOKS_A_REPORT:
            self._progress(min(now / max(self._load.duration_seconds, 1.0), 1.0))
        gap = self._troubles.has_telemetry_gap(now)
        if not gap:
            self._meter.look(len(self._waiting), now)
        idle = not (self._waiting or self._running or self._meter.came)
        at_rest = idle and self._fleet.size <= self._least
        wakeup = self._looks.take(len(self._waiting), self._fleet.ready, idle, now, at_rest)
        if wakeup is None:
            return
        if not gap:  # most looks between two snapshots need no ages
            self._meter.ages_seconds = self._ages(now)
        plan = self._controller.plan(
            Look(
                now=now,
                decided_at=now + DECISION_SECONDS,
                wakeup=None if gap else wakeup,
                meter=self._meter,
                fleet=self._fleet,
                hosts=self._hosts,
            )
        )
        if plan is not None:
            self._at(now + DECISION_SECONDS, self._obey, plan)

    def _ages(self, now: float) -> tuple[float, ...]:
        """Ages of the waiting jobs, the oldest first; of a long line at evenly spaced places."""
        line, arrivals = self._waiting, self._load.arrivals
        if len(line) <= _AGES:
            return tuple(now - arrivals[job] for job in line)
        places = (round(spot * (len(line) - 1) / (_AGES - 1)) for spot in range(_AGES))
        return tuple(now - arrivals[line[place]] for place in places)

    def _obey(self, plan: Plan, now: float) -> None:
        plan = {host: workers for host, workers in plan.items() if host in self._hosts}
        if plan == self._plan:
            return
        self._count(sum(plan.values()) - sum(self._plan.values()))
        self._plan = plan
        for ready_at, worker in self._fleet.command(plan, now):
            self._at(ready_at, self._ready, worker)

    def _count(self, change: int) -> None:
        direction = (change > 0) - (change < 0)
        self._actions += 1
        self._reversals += direction * self._direction < 0
        self._direction = direction or self._direction

    def _at(self, time: float, act: _Act, what: object) -> None:
        heappush(self._events, (time, next(self._order), act, what))

    def _result(self, now: float) -> Run:
        unstarted = 0
        for job, arrival in enumerate(self._load.arrivals):
            if math.isnan(self._waits[job]):
                unstarted += 1
                self._waits[job] = now - arrival
        return Run(
            waits=self._waits,
            unstarted=unstarted,
            worker_seconds=self._fleet.close(now),
            actions=self._actions,
            reversals=self._reversals,
            ended_at=now,
        )
