"""A grid of synthetic loads: its points, a seeded sample of them, and their results, summed up."""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from penstock.config import Profile
from penstock.decider.core.registry import Strategies
from penstock.decider.simulator.model import durations
from penstock.decider.simulator.model.load import Trace
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import study
from penstock.decider.simulator.studies.contenders import Scene
from penstock.decider.simulator.studies.study import SimulationResult, Study

CALM = ("0", "0.1", "0.2", "0.5", "1", "2", "5")
RULES = (
    *(f"deadline:{calm}" for calm in CALM),
    "hybrid",
    "keda:1",
    "hpa:0.7",
    "flink",
    "horizon",
    "spark",
    "aws",
    "clairvoyant",
)
SHAPES = ("steady", "daily", "bursty")
_BIN_SECONDS = 10.0
_MOST_PER_SECOND = 4.0
"""Points with more arrivals take minutes each and are simulated with ``--full`` only."""
_JOBS, _SHORTEST_SECONDS, _LONGEST_SECONDS = 400, 1800.0, 7200.0
_QUIET, _BURST = (0.4, 24.0), (3.4, 6.0)
"""Share of the mean rate, and the mean number of bins that it lasts."""


class Point(msgspec.Struct, frozen=True):
    """A load, a promise and a time to start a worker.

    Attributes:
        erlang: jobs that run at a time, in the mean.
        job_seconds: run time, log-normal.
        cv: its coefficient of variation.
        shape: of the arrivals' rate. A day is as long as the simulation, with 0.2 to 1.8 times the
            mean; bursts of a minute with 3.4 times the mean come every five minutes.
    """

    erlang: float
    job_seconds: float
    cv: float
    shape: str
    sla_seconds: float
    spawn_seconds: float

    @property
    def per_second(self) -> float:
        return self.erlang / self.job_seconds


def grid() -> list[Point]:
    """All points."""
    return [
        Point(*values)
        for values in itertools.product(
            (0.3, 1.0, 3.0, 10.0, 50.0),
            (0.1, 1.0, 5.0, 20.0, 60.0),
            (0.5, 1.0, 3.0),
            SHAPES,
            (5.0, 10.0, 30.0, 120.0),
            (0.1, 1.5, 4.4, 30.0),
        )
    ]


def sample(count: int, seed: int) -> list[Point]:
    """Some points that are quick to simulate, by turns of each shape."""
    quick = [point for point in grid() if point.per_second <= _MOST_PER_SECOND]
    drawn = random.Random(seed).sample(quick, len(quick))
    by_shape = ([point for point in drawn if point.shape == shape] for shape in SHAPES)
    return list(itertools.chain.from_iterable(zip(*by_shape, strict=True)))[:count]


def rows(
    point: Point, names: Sequence[str], strategies: Strategies, seed: int
) -> Iterator[SimulationResult]:
    """One row for each rule."""
    yield from study.run(study_of(point, names, strategies, seed))


def study_of(point: Point, names: Sequence[str], strategies: Strategies, seed: int) -> Study:
    """One point as a study."""
    service = f"lognormal:{point.job_seconds:g},{point.cv:g}"
    return Study(
        traces=[_trace(point, seed)],
        names=names,
        slas=[point.sla_seconds],
        quantile=0.99,
        spawns=[Spawning(seconds=point.spawn_seconds)],
        service=service,
        durations=durations.parse(service),
        thin=[1.0],
        seeds=1,
        profile=Profile(min_workers=0, max_workers=1000),
        strategies=strategies,
    )


def scene(point: Point, strategies: Strategies, seed: int) -> Scene:
    """One point, to be run under any controller."""
    loads = study_of(point, (), strategies, seed)
    return Scene(
        load=study.load_of(loads, trace=0, seed=0),
        profile=msgspec.structs.replace(
            loads.profile, sla_seconds=point.sla_seconds, quantile=loads.quantile
        ),
        strategies=strategies,
        spawning=loads.spawns[0],
        seed=0,
    )


def _trace(point: Point, seed: int) -> Trace:
    seconds = min(max(_JOBS / point.per_second, _SHORTEST_SECONDS), _LONGEST_SECONDS)
    bins = int(seconds / _BIN_SECONDS)
    counts = point.per_second * _BIN_SECONDS * _rates(point.shape, bins, seed)
    return Trace(
        name=f"{point.erlang:g} Erlang {point.shape}",
        origin=1_000_000.0,
        times=np.arange(bins) * _BIN_SECONDS,
        # drawn here, so that each point has arrivals of its own
        counts=np.random.default_rng(seed).poisson(counts).astype(float),
        widths=np.full(bins, _BIN_SECONDS),
    )


def _rates(shape: str, bins: int, seed: int) -> NDArray[np.float64]:
    """Rates of the bins as shares of the mean."""
    if shape == "steady":
        return np.ones(bins)
    if shape == "daily":
        return 1 - 0.8 * np.cos(2 * np.pi * np.arange(bins) / bins)
    chance, shares = np.random.default_rng([seed, 1]), list[float]()
    for share, mean_bins in itertools.cycle((_QUIET, _BURST)):
        if len(shares) >= bins:
            break
        shares += [share] * max(1, round(chance.exponential(mean_bins)))
    return np.array(shares[:bins])


def setting(row: SimulationResult) -> tuple[str, str, float, float]:
    """What rows of different rules have in common."""
    return row.trace, row.service, row.sla_seconds, row.spawn_seconds


def scores(rows: Sequence[SimulationResult]) -> dict[str, dict[str, float]]:
    """By rule: costs over the bound, actions over the clairvoyant's, reversals an hour."""
    actions = {setting(row): row.actions for row in rows if row.strategy == "clairvoyant"}
    result = {}
    for name in dict.fromkeys(row.strategy for row in rows):
        own = [row for row in rows if row.strategy == name]
        costs = [row.cost_ratio for row in own]
        ratios = [row.actions / max(actions[setting(row)], 1.0) for row in own]
        result[name] = {
            "settings": len(own),
            "kept": sum(row.keeps_promise for row in own),
            "late_share_mean": round(statistics.fmean(row.late_share for row in own), 4),
            "late_share_worst": round(max(row.late_share for row in own), 4),
            "cost_median": round(statistics.median(costs), 3),
            "cost_most": round(max(costs), 3),
            "actions_median": round(statistics.median(ratios), 2),
            "actions_most": round(max(ratios), 2),
            "reversals_an_hour_median": round(
                statistics.median(row.reversals / row.hours for row in own), 1
            ),
        }
    return result
