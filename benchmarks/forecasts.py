"""Trained forecasts and what-if runs: how good, what they change, how many a minute. Prints JSON.

    benchmarks/forecasts.py [TRACE.csv …] [--only quality,simulated,speed,whatif]

quality: each trace's days after the fifth, forecast every six hours for a day ahead from what was
before (rolling origin; the model chosen by what was before, too), against the better of the two
seasonal-naive ones, made and calibrated in the same way. simulated: `deadline` on the same days
with and without the forecast, made at each midnight. speed: pools of four weeks of made-up minutes
on `local[2]`. whatif: simulated days of made-up pools on `local[2]`. Traces are read in place.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from pyspark.sql import functions as f

from machine import describe
from penstock.config import Pool, Profile
from penstock.decider import plugins
from penstock.decider.simulator.model import durations, load, traces
from penstock.decider.simulator.model.spawning import Spawning
from penstock.decider.simulator.studies import contenders, study, tuning
from penstock.measuring.calibration import SHARES
from penstock.measuring.trained import Curve
from penstock.pipeline.analysis import forecasts, whatif
from penstock.pipeline.core import forecast as core
from penstock.pipeline.core.forecast import Made, Plan
from penstock.pipeline.core.seasons import MODELS, REFERENCES, Floats
from penstock.pipeline.session import spark_session

FOUND = Path(__file__).resolve().parents[2] / "shared" / "traces"
HOUR, DAY, WEEK = 3600, 86_400, 7 * 86_400


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help=f"traces; else those in {FOUND.name}")
    parser.add_argument("--only", default=",".join(RUNS))
    parser.add_argument("--pools", default="50,200", help="speed: so many pools")
    parser.add_argument("--days", default="100,200", help="whatif: so many pool-days")
    parser.add_argument("--hours", type=float, default=2.0, help="whatif: of each day")
    parser.add_argument("--spawn", default="2,60", help="simulated: seconds to start a worker")
    options = parser.parse_args()
    result: dict[str, Any] = {"benchmark": "forecasts", "machine": describe()}
    for part in options.only.split(","):
        began = time.monotonic()
        result[part] = list(RUNS[part](options))
        print(f"{part}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    print(json.dumps(result, indent=2))


# --- on traces ---------------------------------------------------------------------------------
class Series(msgspec.Struct, frozen=True):
    """A trace in steps."""

    trace: load.Trace
    counts: Floats
    step: int

    @property
    def per_day(self) -> int:
        return DAY // self.step

    @property
    def plan(self) -> Plan:
        return Plan(step_seconds=self.step, horizon_steps=self.per_day)


def series(paths: Sequence[Path]) -> Iterator[Series]:
    """Of every trace that is longer than six days, and of one that is made up."""
    for path in paths or sorted(FOUND.glob("*.csv")):
        trace = traces.read(path)
        if trace.counts is None or trace.duration_seconds < 6 * DAY:
            continue
        step = 60 if float(np.median(trace.widths)) <= 60 else 300
        bins = np.arange(0, trace.duration_seconds + step, step)
        counts, _ = np.histogram(trace.times, bins, weights=trace.counts)
        yield Series(trace, counts.astype(float), step)
    yield scheduled()


def scheduled() -> Series:
    """A week, made up: a trickle, and three minutes of fifty times as much each hour."""
    minute = np.arange(7 * 1440)
    rates = 0.2 + 9.8 * (minute % 60 < 3)
    counts = np.random.default_rng(1).poisson(60 * rates).astype(float)
    times, widths = minute * 60.0, np.full(len(minute), 60.0)
    trace = load.Trace(
        name="scheduled (made up)", origin=0.0, times=times, counts=counts, widths=widths
    )
    return Series(trace, counts, 60)


def quality(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for one in series(options.paths):
        losses: dict[str, list[float]] = {"forecast": [], "seasonal-naive": []}
        covered, chosen = [], []
        last = len(one.counts) - one.per_day
        for origin in range(core.LEAST_DAYS * one.per_day, last + 1, one.per_day // 4):
            came = one.counts[origin : origin + one.per_day]
            made = _made(one, origin, MODELS)
            losses["forecast"].append(core.loss(made.upper, came))
            losses["seasonal-naive"].append(core.loss(_made(one, origin, REFERENCES).upper, came))
            covered.append((came <= made.upper).mean(axis=1))
            chosen.append(made.model)
        yield {
            "trace": one.trace.name,
            "step_seconds": one.step,
            "origins": len(chosen),
            "relative_loss": round(sum(losses["forecast"]) / sum(losses["seasonal-naive"]), 3),
            "better_origins": round(float(np.mean(np.less(*losses.values()))), 3),
            "coverage": dict(zip(map(str, SHARES), np.mean(covered, axis=0).round(3), strict=True)),
            "models": {name: chosen.count(name) for name in sorted(set(chosen))},
        }


def _made(one: Series, origin: int, models: Mapping[str, Any]) -> Made:
    all_models, core.MODELS = core.MODELS, models
    try:
        made = core.make_forecast(one.counts[:origin], one.trace.origin, one.plan)
    finally:
        core.MODELS = all_models
    assert made is not None
    return made


def simulated(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The busiest day of each trace, at about two jobs a second."""
    profile = Profile(min_workers=0, max_workers=1000, sla_seconds=10.0, quantile=0.99)
    for one in series(options.paths):
        day = one.counts[core.LEAST_DAYS * one.per_day :]
        best = int(np.argmax(np.add.reduceat(day, np.arange(0, len(day), one.per_day))))
        origin = (core.LEAST_DAYS + best) * one.per_day
        trace = load.cut(one.trace, origin * one.step, min(6 * HOUR, DAY))
        thin = min(1.0, 2 * trace.duration_seconds / trace.arrivals)
        rates = _made(one, origin, MODELS).mean * thin / one.step
        for spawn in map(float, options.spawn.split(",")):
            jobs = load.draw(trace, durations.parse("lognormal:1,1"), thin=thin)
            for name, curve in (("without", None), ("with", Curve(0.0, one.step, rates))):
                scene = contenders.Scene(
                    load=msgspec.structs.replace(jobs, curve=curve),
                    profile=profile,
                    strategies=plugins.strategies(),
                    spawning=Spawning(seconds=spawn),
                    seed=0,
                )
                found = scene.run(contenders.controller("deadline", scene))
                figures = study.figures(found, profile.sla_seconds)
                yield {
                    "trace": trace.name,
                    "forecast": name,
                    "spawn_seconds": spawn,
                    "jobs": figures.jobs,
                    "late_share": round(figures.late_share, 5),
                    "worker_seconds": round(figures.worker_seconds),
                    "actions": figures.actions,
                }


# --- on Spark ----------------------------------------------------------------------------------
def speed(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    steps = 4 * WEEK // 60
    with spark_session("local[2]") as spark:
        for pools in map(int, options.pools.split(",")):
            rows = spark.range(pools * steps).select(
                f.concat(f.lit("pool-"), (f.col("id") / steps).cast("int")).alias("pool"),
                (f.col("id") % steps).alias("step"),
            )
            wave = 10 * f.rand(1) * (1 + f.sin(2 * np.pi * f.col("step") / 1440))
            began = time.perf_counter()
            made = list(
                forecasts.forecasts(rows.withColumn("count", wave.cast("long")), 0, steps, Plan())
            )
            seconds = time.perf_counter() - began
            assert len(made) == pools, len(made)
            yield {
                "pools": pools,
                "minutes_each": steps,
                "seconds": round(seconds, 1),
                "seconds_for_1000": round(seconds / pools * 1000),
            }


def whatif_pools(count: int) -> dict[str, Pool]:
    profile = Profile(min_workers=0, sla_seconds=30.0)
    names = [f"pool-{number}" for number in range(count)]
    return {n: Pool(name=n, kind="queue", queues=(n,), profile=profile) for n in names}


def whatif_part(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """500 jobs a day in each pool, two settings: each of them is a simulated pool-day."""
    jobs, settings = 500, {"warm": {"min_workers": 1}}
    with spark_session("local[2]") as spark:
        for days in map(int, options.days.split(",")):
            pools = whatif_pools(days // 2)
            rows = spark.range(len(pools) * jobs).select(
                f.concat(f.lit("pool-"), (f.col("id") / jobs).cast("int")).alias("pool"),
                (f.rand(2) * DAY * 1e6).cast("long").alias("micros"),
                (-5 * f.log(1 - f.rand(3))).alias("run_seconds"),
            )
            one = partial(tuning.simulate, pools, settings, 2.0)
            began = time.perf_counter()
            found = list(whatif.spread(rows, options.hours, one, tuning.Day))
            seconds = time.perf_counter() - began
            assert len(found) == 2 * len(pools), len(found)
            yield {
                "pool_days": len(found),
                "jobs_a_day": jobs,
                "hours_of_each": options.hours,
                "seconds": round(seconds, 1),
                "pool_days_a_minute": round(len(found) / seconds * 60),
                "late_share": round(
                    sum(d.late for _, d in found) / sum(d.jobs for _, d in found), 4
                ),
            }


RUNS = {"quality": quality, "simulated": simulated, "speed": speed, "whatif": whatif_part}

if __name__ == "__main__":
    main()
