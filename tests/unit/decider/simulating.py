"""Builders for the simulator's tests: loads, a controller that follows a list, a scene."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.config import Profile
from penstock.decider.core.registry import BUILTIN
from penstock.decider.simulator.model.controller import Look, Plan
from penstock.decider.simulator.model.durations import Lognormal
from penstock.decider.simulator.model.engine import HOST, Simulation
from penstock.decider.simulator.model.load import Load, Trace, draw
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies.contenders import Scene

EXACT = Spawning(seconds=1.0, contention=0.0, cv=0.0)


def load(*jobs: tuple[float, float], duration: float | None = None) -> Load:
    """Jobs as (arrival, run time)."""
    arrivals, services = [list(each) for each in zip(*jobs, strict=True)] if jobs else ([], [])
    last = arrivals[-1] if arrivals else 0.0
    return Load(
        origin=1_000_000.0,
        arrivals=arrivals,
        services=services,
        duration_seconds=last if duration is None else duration,
    )


def poisson(
    per_second: float,
    seconds: float = 300.0,
    job_seconds: float = 1.0,
    cv: float = 1.0,
    seed: int = 0,
) -> Load:
    """Jobs at a steady rate."""
    return shaped([per_second] * int(seconds / 10), job_seconds=job_seconds, cv=cv, seed=seed)


def shaped(
    rates: Sequence[float],
    bin_seconds: float = 10.0,
    job_seconds: float = 1.0,
    cv: float = 1.0,
    seed: int = 0,
) -> Load:
    """Jobs at these rates, one after the other."""
    trace = Trace(
        name="shaped",
        origin=1_000_000.0,
        times=np.arange(len(rates)) * bin_seconds,
        counts=np.array(rates, dtype=float) * bin_seconds,
        widths=np.full(len(rates), bin_seconds),
    )
    return draw(trace, Lognormal(job_seconds, cv), seed=seed)


class Steps:
    """So many workers from so many seconds on; remembers what it saw."""

    def __init__(self, *steps: tuple[float, int], host: str = HOST) -> None:
        self._steps, self._host = steps, host
        self.looks: list[Look] = []

    def plan(self, look: Look) -> Plan | None:
        self.looks.append(look)
        count = [count for since, count in self._steps if since <= look.now]
        return {self._host: count[-1]} if count else None


def simulation(jobs: Load, controller: Any, **more: Any) -> Simulation:
    more = {"spawning": EXACT, **more}
    return Simulation(jobs, controller, **more)


def scene(jobs: Load, **profile: Any) -> Scene:
    settings: dict[str, Any] = {"sla_seconds": 5.0, "min_workers": 0, "max_workers": 1000}
    return Scene(
        load=jobs,
        profile=Profile(**{**settings, **profile}),
        strategies=BUILTIN,
        spawning=EXACT,
        seed=0,
    )
