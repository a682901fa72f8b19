"""CPU seconds of a simulation: a day's curve of arrivals, decided each second. Prints JSON.

One load for every strategy, whose rate follows the time of the day: 2.6 jobs a second of 1 s in the
mean, as many as 113,000 in twelve hours. One process; CPU time, as the machine is shared. The
checksum is of all waits, the cost and the actions: two programs with equal ones made equal runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from hashlib import blake2b
from typing import Any

import msgspec
import numpy as np

from machine import describe
from penstock.config import Profile
from penstock.decider import plugins
from penstock.decider.simulator.model.durations import Lognormal
from penstock.decider.simulator.model.engine import Run
from penstock.decider.simulator.model.load import Load, Trace, draw
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import contenders
from penstock.decider.simulator.studies.contenders import Scene

_BIN_SECONDS, _DAY = 60.0, 86_400.0


def load_of(hours: float) -> Load:
    times = np.arange(round(hours * 60)) * _BIN_SECONDS
    rates = 2.6 + 2 * np.sin(2 * np.pi * times / _DAY - hours / 24 * np.pi)
    trace = Trace(
        name="daily",
        origin=1_700_000_000.0,
        times=times,
        counts=rates * _BIN_SECONDS,
        widths=np.full(len(times), _BIN_SECONDS),
    )
    return draw(trace, Lognormal(1.0, 1.0))


def checksum(run: Run) -> str:
    return blake2b(msgspec.json.encode(run), digest_size=8).hexdigest()


def measure(strategy: str, load: Load, repeat: int) -> dict[str, Any]:
    profile = Profile(strategy=strategy, min_workers=0, max_workers=1000)
    scene = Scene(
        load=load,
        profile=profile,
        strategies=plugins.strategies(),
        spawning=Spawning(seconds=1.0),
        seed=0,
    )
    seconds, runs = [], set()
    for _ in range(repeat):
        began = time.process_time()
        run = contenders.run(strategy, scene)
        seconds.append(time.process_time() - began)
        runs.add(checksum(run))
    if len(runs) > 1:
        sys.exit(f"found runs that differ: {sorted(runs)}; expected equal ones from one seed")
    return {
        "cpu_seconds": round(statistics.median(seconds), 2),
        "runs": [round(one, 2) for one in seconds],
        "checksum": runs.pop(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--strategy", default="deadline,hybrid")
    parser.add_argument("--repeat", type=int, default=1)
    options = parser.parse_args()
    load = load_of(options.hours)
    head = {"benchmark": "simulate", "machine": describe(), "jobs": len(load.arrivals)}
    results = {name: measure(name, load, options.repeat) for name in options.strategy.split(",")}
    print(json.dumps({**head, "hours": options.hours, "strategies": results}, indent=2))


if __name__ == "__main__":
    main()
