"""How calm a pool can be at which cost: the clairvoyant with a price on each start of a worker.

No rule that keeps the promise can take fewer actions at the same cost than one that knows all
arrivals and run times, or not by much: it plans by dynamic programming over the fluid of the load.
Prints JSON: for each sampled setting and price the late share, cost over the bound, actions and
reversals an hour; and over all settings the share in which 20 reversals an hour are reached at no
more than 1.10 times the bound, at any of the prices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import regimes
from machine import describe
from penstock.decider import plugins
from penstock.decider.simulator.bounds.bound import bound_worker_seconds
from penstock.decider.simulator.bounds.clairvoyant import Clairvoyant
from penstock.decider.simulator.model.engine import HOST
from penstock.decider.simulator.studies import study
from penstock.decider.simulator.studies.contenders import Scene

PRICES = (0.0, 5.0, 20.0, 60.0, 200.0)
"""Worker-seconds."""
TIGHTER = (1.0, 0.8, 0.6)
"""Shares of the promise that are planned for, the first that keeps it."""
GOAL_REVERSALS, GOAL_COST = 20.0, 1.10


def row(point: regimes.Point, scene: Scene, bound: float, price: float) -> dict[str, Any]:
    """The run that plans for the loosest promise with which the given one is kept."""
    promise, hours = scene.profile.sla_seconds, scene.load.duration_seconds / 3600
    for share in TIGHTER:
        controller = Clairvoyant(
            scene.load, promise * share, scene.spawning.seconds, HOST, start_price=price
        )
        figures = study.figures(scene.run(controller), promise)
        if figures.late_share <= 1 - scene.profile.quantile:
            break
    return {
        "erlang": point.erlang,
        "job_seconds": point.job_seconds,
        "cv": point.cv,
        "shape": point.shape,
        "sla_seconds": promise,
        "spawn_seconds": point.spawn_seconds,
        "price": price,
        "late_share": round(figures.late_share, 4),
        "cost": round(figures.worker_seconds / bound, 3),
        "actions_an_hour": round(figures.actions / hours, 1),
        "reversals_an_hour": round(figures.reversals / hours, 1),
    }


def rows(point: regimes.Point, seed: int) -> list[dict[str, Any]]:
    scene = regimes.scene(point, plugins.strategies(), seed)
    bound = bound_worker_seconds(
        scene.load,
        sla_seconds=scene.profile.sla_seconds,
        late_share=1 - scene.profile.quantile,
        spawn_seconds=scene.spawning.seconds,
    )
    return [row(point, scene, bound, price) for price in PRICES]


def summary(found: Sequence[Sequence[dict[str, Any]]]) -> dict[str, Any]:
    by_price = {
        price: [row for own in found for row in own if row["price"] == price] for price in PRICES
    }
    reached = [
        any(row["reversals_an_hour"] <= GOAL_REVERSALS and row["cost"] <= GOAL_COST for row in own)
        for own in found
    ]
    return {
        "settings": len(found),
        "goal_reached_at_any_price": sum(reached),
        "by_price": {
            price: {
                name: round(statistics.median(row[name] for row in own), 3)
                for name in ("cost", "actions_an_hour", "reversals_an_hour")
            }
            for price, own in by_price.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=240.0, help="no further point after")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    over, machine = time.monotonic() + options.seconds, describe()
    points = [
        (number, point)
        for number, point in enumerate(regimes.sample(3 * options.points, options.seed))
        if point.sla_seconds > point.spawn_seconds + 2
    ]
    found: list[list[dict[str, Any]]] = []
    for number, point in points[: options.points]:
        if time.monotonic() > over:
            break
        found.append(rows(point, options.seed + number))
        print(found[-1], file=sys.stderr, flush=True)
    result = {
        "benchmark": "calmest",
        "machine": machine,
        **summary(found),
        "rows": [row for own in found for row in own],
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
