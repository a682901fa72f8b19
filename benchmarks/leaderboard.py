"""Strategies and baselines on synthetic loads and on recorded traces: late jobs, cost, actions.

Prints JSON. First a seeded sample of a grid (`regimes.py`: 0.3 to 50 Erlang x run times x shapes x
promises x times to start a worker) with the rules of other systems, and pictures of cost against
actions for each shape and for all (`frontier.py`); ``--full`` takes the whole grid, which takes
days. Then, with ``--traces``, every strategy and baseline on every trace found:

Traces x promise (5, 10, 30 s) x time to start a worker (0.1, 1, 4.4 s), several seeds each. A
trace is cut to its busiest hours and thinned to what fits into the time there is; both are said in
every row. Jobs run as long as the trace says where it has generated tokens for each (0.05 s a
token), else log-normally, 1 s in the mean. A picture of late share against cost is drawn, too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

import frontier
import regimes
from machine import describe
from penstock.config import Profile
from penstock.decider import plugins
from penstock.decider.simulator.model import durations, load, traces
from penstock.decider.simulator.model.load import Trace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import contenders, picture, study
from penstock.decider.simulator.studies.study import SimulationResult, Study
from scoring import can_hold, score

FOUND = Path(__file__).resolve().parents[2] / "shared" / "traces"
TOKENS, SECONDS_A_TOKEN = "GeneratedTokens", 0.05
PROFILE = Profile(min_workers=0, max_workers=1000)


def read(path: Path, hours: float) -> tuple[Trace, str]:
    """A trace and its run times."""
    service = "lognormal:1,1"
    try:
        trace = traces.read(path, size=TOKENS)
        if trace.counts is None:
            service = f"column:{TOKENS},{SECONDS_A_TOKEN}"
    except traces.BadTrace:
        trace = traces.read(path)
    return load.busiest(trace, hours * 3600), service


def thinning(trace: Trace, jobs: int) -> float:
    """One in so many arrivals is kept: a round number."""
    factor = trace.arrivals / jobs
    if factor <= 1:
        return 1.0
    scale = 10 ** math.floor(math.log10(factor))
    return math.ceil(factor / scale) * scale


def question(options: argparse.Namespace, path: Path) -> Study:
    trace, service = read(path, options.hours)
    strategies = plugins.strategies()
    seeing = (name for name in strategies if name not in contenders.BLIND)
    everybody = [*seeing, *contenders.BASELINES]
    names = options.strategy.split(",") if options.strategy else everybody
    for name in names:
        contenders.check(name, strategies)
    return Study(
        traces=[trace],
        names=names,
        slas=options.sla,
        quantile=options.quantile,
        spawns=[Spawning(seconds=seconds) for seconds in options.spawn],
        service=service,
        durations=durations.parse(service),
        thin=[thinning(trace, options.jobs)],
        seeds=options.seeds,
        profile=PROFILE,
        strategies=strategies,
    )


def grid_rows(options: argparse.Namespace) -> Iterator[SimulationResult]:
    points = regimes.grid() if options.full else regimes.sample(options.points, options.seed)
    names = options.strategy.split(",") if options.strategy else regimes.RULES
    over = math.inf if options.full else time.monotonic() + options.seconds
    for number, point in enumerate(points):
        if time.monotonic() > over:
            print(f"{number} of {len(points)} points: the time is over", file=sys.stderr)
            return
        for row in regimes.rows(point, names, plugins.strategies(), options.seed + number):
            _tell(row)
            yield row


def grid_scores(found: Sequence[SimulationResult]) -> dict[str, Any]:
    """Where a worker can be started within the promise, and where it cannot."""
    holdable = [row for row in found if can_hold(row)]
    others = [row for row in found if not can_hold(row)]
    return {
        "start_within_promise": regimes.scores(holdable),
        "start_beyond_promise": regimes.scores(others),
    }


def rows(options: argparse.Namespace) -> Iterator[SimulationResult]:
    for path in options.paths or sorted(FOUND.glob("*.csv")):
        for row in study.run(question(options, path), options.processes):
            _tell(row)
            yield row


def _tell(row: SimulationResult) -> None:
    print(
        f"{row.trace} {row.service} {row.sla_seconds:g} s / {row.spawn_seconds:g} s "
        f"{row.strategy}: "
        f"{row.late_share:.2%} late, {row.worker_seconds / row.bound_worker_seconds:.2f} x bound, "
        f"{row.actions:.0f} actions",
        file=sys.stderr,
        flush=True,
    )


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def asked(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help=f"traces; else those in {FOUND.name}")
    parser.add_argument("--strategy", help="names with commas between them; else everybody")
    parser.add_argument("--sla", type=_numbers, default=[5.0, 10.0, 30.0])
    parser.add_argument("--spawn", type=_numbers, default=[0.1, 1.0, 4.4])
    parser.add_argument("--quantile", type=float, default=0.99)
    parser.add_argument("--hours", type=float, default=2.0, help="the busiest so many")
    parser.add_argument("--jobs", type=int, default=40_000, help="thin to about so many")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--picture", type=Path, default=Path("leaderboard.svg"))
    parser.add_argument("--points", type=int, default=12, help="of the grid; 0 for none")
    parser.add_argument("--seconds", type=float, default=240.0, help="no further point after")
    parser.add_argument("--seed", type=int, default=59, help="of the sample and its arrivals")
    parser.add_argument("--full", action="store_true", help="all points of the grid")
    parser.add_argument("--traces", action="store_true", help="recorded traces, too")
    return parser.parse_args(arguments)


def main() -> None:
    options = asked()
    began = time.monotonic()
    synthetic = list(grid_rows(options)) if options.points or options.full else []
    recorded = list(rows(options)) if options.traces or options.paths else []
    if not synthetic and not recorded:
        sys.exit(f"nothing to simulate: give --points, or put traces into {FOUND}")
    result: dict[str, Any] = {
        "benchmark": "leaderboard",
        "machine": describe(),
        "took_seconds": round(time.monotonic() - began, 1),
        "grid": grid_scores(synthetic),
        "scores": score(recorded),
        "rows": msgspec.to_builtins([*synthetic, *recorded]),
    }
    print(json.dumps(result, indent=2))
    if synthetic:
        holdable = [row for row in synthetic if can_hold(row)]
        frontier.draw(holdable, options.picture.with_stem("cost-and-actions"))
    if recorded:
        picture.draw(recorded, options.picture)


if __name__ == "__main__":
    main()
