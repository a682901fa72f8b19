"""Recorded days of many pools through a simulation: Spark spreads them, a day of a pool each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.config import Pool
from penstock.measuring.assumed import LEAST_JOB_SECONDS, UNKNOWN_JOB_SECONDS
from penstock.pipeline.analysis.arrivals import arrivals, run_times
from penstock.pipeline.app import opened
from penstock.pipeline.session import evenly

Floats = NDArray[np.float64]
Result = TypeVar("Result", bound=msgspec.Struct)
Simulate = Callable[[str, float, float, Floats, Floats], Sequence[Result]]
"""Of a pool, its stretch's beginning (POSIX seconds) and hours, arrivals (seconds from there, in
order) and run times: what came out, a value for each setting."""

_DAY_MICROS = 86_400_000_000
_HOUR_MICROS = 3_600_000_000
_SCHEMA = "pool string, result binary"


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The days and pools to simulate.

    Attributes:
        since: the first midnight, UTC.
        until: the last midnight, UTC.
        pool: only this one, if not empty.
        hours: of each day, another part of it each day, so that all hours are seen in turn.
    """

    lake: str
    master: str = "local[2]"
    since: datetime
    until: datetime
    pool: str = ""
    hours: float = 24.0


def simulate(
    pools: Mapping[str, Pool], wanted: Wanted, one: Simulate[Result], kind: type[Result]
) -> list[tuple[str, Result]]:
    """Pool and result, of each day and setting.

    Args:
        kind: of the results.

    Raises:
        ValueError: the lake is empty.
    """
    with opened(wanted.lake, wanted.master) as parts:
        return list(spread(jobs(parts["events"].read(), pools, wanted), wanted.hours, one, kind))


def jobs(events: DataFrame, pools: Mapping[str, Pool], wanted: Wanted) -> DataFrame:
    """``pool``, ``micros`` and ``run_seconds``: a row each job that came in that time."""
    came = arrivals(events, pools, wanted.since)
    wanted_pools = [wanted.pool] if wanted.pool else list(pools)
    before = f.col("micros") < int(wanted.until.timestamp() * 1e6)
    came = came.where(before & f.col("pool").isin(wanted_pools))
    long = run_times(events, wanted.since)
    return came.join(long, "job_id", "left").select("pool", "micros", "run_seconds")


def spread(
    came: DataFrame, hours: float, one: Simulate[Result], kind: type[Result]
) -> Iterator[tuple[str, Result]]:
    """The same from rows of `jobs`; a day on which nothing came is left out."""
    day = f.floor(f.col("micros") / _DAY_MICROS).cast("long")
    within = came.withColumn("day", day).where(_is_inside(hours))
    days = evenly(within, "pool", "day").groupBy("pool", "day")
    for row in days.applyInArrow(_in_groups(hours, one), _SCHEMA).collect():
        yield row.pool, msgspec.msgpack.decode(row.result, type=kind)


def begin_hour(day: int, hours: float) -> float:
    """The hour at which a day's stretch begins (days since 1970); each day has the next one."""
    return min((day * hours) % 24.0, 24.0 - hours)


def _is_inside(hours: float) -> Column:
    begin = f.least(f.pmod(f.col("day") * hours, f.lit(24.0)), f.lit(24.0 - hours)) * _HOUR_MICROS
    into = f.pmod(f.col("micros"), f.lit(_DAY_MICROS))
    return (into >= begin) & (into < begin + hours * _HOUR_MICROS)


def _in_groups(hours: float, one: Simulate[Result]) -> Callable[[pa.Table], pa.Table]:
    def group(rows: pa.Table) -> pa.Table:
        pool, day = rows["pool"][0].as_py(), rows["day"][0].as_py()
        origin = day * 86_400.0 + begin_hour(day, hours) * 3600.0
        times = rows["micros"].to_numpy() / 1e6 - origin
        order = np.argsort(times, kind="stable")
        long = _completed(rows["run_seconds"].to_numpy().astype(float))
        results = one(pool, origin, hours, times[order], long[order])
        packed = [msgspec.msgpack.encode(result) for result in results]
        names = pa.array([pool] * len(packed), pa.string())
        return pa.table({"pool": names, "result": pa.array(packed, pa.binary())})

    return group


def _completed(seconds: Floats) -> Floats:
    """Run times, with the mean for jobs that did not end well, or not yet."""
    finished = seconds[~np.isnan(seconds)]
    mean = float(finished.mean()) if len(finished) else UNKNOWN_JOB_SECONDS
    return np.maximum(np.where(np.isnan(seconds), mean, seconds), LEAST_JOB_SECONDS)


def days_back(days: float, now: datetime) -> tuple[datetime, datetime]:
    """Whole UTC days up to the last midnight."""
    until = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return until - timedelta(days=max(1, round(days))), until
