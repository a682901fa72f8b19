"""Forecasts of many pools at a time: Spark spreads the pools, each is forecast by the core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.config import Pool, Settings
from penstock.config.topology import pools
from penstock.events.forecasting import ForecastMade
from penstock.pipeline.analysis.arrivals import arrived, by_step
from penstock.pipeline.app import opened
from penstock.pipeline.core.forecast import Made, Plan, make_forecast
from penstock.pipeline.core.seasons import Floats
from penstock.pipeline.lake.rollups import NOTHING, Minutes, Rollups
from penstock.pipeline.session import evenly

_FIGURES = 5
"""Significant digits of published rates."""
_SCHEMA = "event binary"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of `penstock pipeline forecast`.

    Attributes:
        lake: its folder.
        weeks: how far back to learn.
        pool: only this one, if not empty.
        until: learn what was before this; None: up to the newest arrival in the lake.
    """

    lake: str
    master: str = "local[2]"
    weeks: float = 4.0
    pool: str = ""
    until: datetime | None = None
    plan: Plan = Plan()


def forecast(settings: Settings, wanted: Wanted) -> list[ForecastMade]:
    """Forecasts of all pools of the lake whose settings do not forbid it.

    Raises:
        ValueError: the lake is empty, or holds no arrival for the pool that was asked for.
    """
    with opened(wanted.lake, wanted.master) as parts:
        events = parts["events"]
        summed = Rollups(events.spark, wanted.lake).minutes("events")
        return list(of_events(events.read(), pools(settings), wanted, summed))


def of_events(
    events: DataFrame, configured: Mapping[str, Pool], wanted: Wanted, summed: Minutes = NOTHING
) -> Iterator[ForecastMade]:
    """The same from the lake's rows, and what of them is summed up.

    Raises:
        ValueError: no job of the requested pool came in that time.
    """
    plan, end = wanted.plan, wanted.until or datetime.now(UTC)
    since = end - timedelta(weeks=wanted.weeks)
    came = arrived(events, summed, configured, since)
    came = came.where(
        (f.col("micros") < int(end.timestamp() * 1e6)) & _is_wanted(configured, wanted)
    )
    counted = by_step(came, plan.step_seconds).cache()
    newest = counted.agg(f.max("step")).first()
    if newest is None or newest[0] is None:
        if wanted.pool:
            raise ValueError(f"no job came for {wanted.pool} within {wanted.weeks:g} weeks")
        return
    last = newest[0] if wanted.until is None else _step(end, plan) - 1
    yield from forecasts(counted, _step(since, plan), last + 1, plan)
    counted.unpersist()


def _is_wanted(configured: Mapping[str, Pool], wanted: Wanted) -> Column:
    off = [name for name, pool in configured.items() if pool.profile.forecast == "off"]
    allowed = ~f.col("pool").isin(off)
    return allowed & (f.col("pool") == wanted.pool) if wanted.pool else allowed


def _step(at: datetime, plan: Plan) -> int:
    return int(at.timestamp() // plan.step_seconds)


def forecasts(counted: DataFrame, first: int, end: int, plan: Plan) -> Iterator[ForecastMade]:
    """Forecasts of each pool from the steps ``first`` to ``end - 1``.

    Args:
        counted: ``pool``, ``step`` and ``count``; steps without arrivals may be missing.
    """
    inside = counted.where((f.col("step") >= first) & (f.col("step") < end))
    pools = evenly(inside, "pool").groupBy("pool")
    for row in pools.applyInArrow(spread(first, end, plan), _SCHEMA).collect():
        yield msgspec.msgpack.decode(row.event, type=ForecastMade)


def spread(first: int, end: int, plan: Plan) -> Callable[[pa.Table], pa.Table]:
    """The function that Spark's Python workers run on the rows of a pool."""

    def one(rows: pa.Table) -> pa.Table:
        counts = np.zeros(end - first)
        np.add.at(counts, rows["step"].to_numpy() - first, rows["count"].to_numpy())
        event = forecast_one(rows["pool"][0].as_py(), counts, first, plan)
        encoded = [] if event is None else [msgspec.msgpack.encode(event)]
        return pa.table({"event": pa.array(encoded, pa.binary())})

    return one


def forecast_one(pool: str, counts: Floats, first: int, plan: Plan) -> ForecastMade | None:
    """A forecast from the first arrival on; None where that is too recent."""
    came = np.flatnonzero(counts)
    begin = int(came[0]) if len(came) else len(counts)
    start = (first + begin) * plan.step_seconds
    made = make_forecast(counts[begin:], float(start), plan)
    return None if made is None else _event(pool, made, start, len(counts) - begin, plan)


def _event(pool: str, made: Made, start: int, steps: int, plan: Plan) -> ForecastMade:
    end = datetime.fromtimestamp(start + steps * plan.step_seconds, UTC)
    per_second = partial(_rates, plan.step_seconds)
    p80, p95, p99 = (per_second(upper) for upper in made.upper)
    return ForecastMade(
        source="pipeline",
        pool=pool,
        model=made.model,
        starts_at=end,
        step_seconds=plan.step_seconds,
        mean_per_second=per_second(made.mean),
        p80_per_second=p80,
        p95_per_second=p95,
        p99_per_second=p99,
        relative_loss=made.relative_loss,
        coverage=made.coverage,
        origins=made.origins,
        trained_since=datetime.fromtimestamp(start, UTC),
        trained_until=end,
        off=made.off,
    )


def _rates(step_seconds: int, counts: Floats) -> tuple[float, ...]:
    return tuple(float(f"{count / step_seconds:.{_FIGURES}g}") for count in counts)
