"""Gathers a report from the lake: a few sums by Spark, put together pool by pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from penstock.config import Pool
from penstock.config.profiles import PROFILES, Profile
from penstock.events.forecasting import ForecastMade
from penstock.events.job import JobFailed, JobStarted
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import PoolSnapshot
from penstock.pipeline.analysis.arrivals import arrived, by_step, pool_of
from penstock.pipeline.app import opened
from penstock.pipeline.core.report import (
    Decision,
    ForecastAccuracy,
    Hour,
    Moment,
    PoolReport,
    Report,
    judge,
)
from penstock.pipeline.events import KNOWN
from penstock.pipeline.lake.rollups import NOTHING, Minutes, Rollups

MOST_MOMENTS = 5
_MOMENT_SECONDS = 300
_BEFORE_SECONDS = 120
"""Decisions of so long before a bad moment are shown with it."""
_MOST_DECISIONS = 4
_MOST_REASONS = 4
_SHARES = "array(0.5, 0.95)"


def report(lake: str, master: str, pools: Mapping[str, Pool], days: float, now: datetime) -> Report:
    """A report of all pools in which jobs started, or that were measured.

    Raises:
        ValueError: the lake is empty.
    """
    with opened(lake, master) as parts:
        snapshots = parts["snapshots"]
        held = snapshots.read() if snapshots.contents().files else None
        rollups = Rollups(snapshots.spark, lake)
        summed = {part: rollups.minutes(part) for part in parts}
        events = parts["events"].read()
        return gather(events, held, pools, now - timedelta(days=days), now, summed)


def gather(
    events: DataFrame,
    snapshots: DataFrame | None,
    pools: Mapping[str, Pool],
    since: datetime,
    until: datetime,
    summed: Mapping[str, Minutes] = MappingProxyType({}),
) -> Report:
    """The same from the lake's rows, and what of them is summed up, by part of the lake."""
    started = _started(events, pools, since, until).cache()
    came = arrived(events, summed.get("events", NOTHING), pools, since)
    minutes = _minutes(came, until)
    workers = _workers(snapshots, summed.get("snapshots", NOTHING), since, until)
    totals = {row.pool: row for row in _totals(started).collect()}
    failed = _failed(events, pools, since, until)
    by_hour = _by_hour(started)
    worst = _worst(started, events, since, until)
    forecasts = _forecasts(events, since, until)
    started.unpersist()
    names = sorted(totals.keys() | minutes.keys() | workers.keys())
    return Report(
        since=since,
        until=until,
        pools=tuple(
            _pool(
                name,
                _profile(pools, name),
                totals.get(name),
                failed.get(name, 0),
                _hours(since, until, minutes[name], by_hour[name], workers[name]),
                worst.get(name, ()),
                _judged(forecasts.get(name, ()), minutes[name], until),
            )
            for name in names
        ),
    )


def _profile(pools: Mapping[str, Pool], name: str) -> Profile:
    return pools[name].profile if name in pools else PROFILES["balanced"]


def _pool(
    name: str,
    profile: Profile,
    total: Row | None,
    failed: int,
    hours: Sequence[Hour],
    worst: Iterable[Moment],
    forecast: ForecastAccuracy | None,
) -> PoolReport:
    measured = [hour.workers for hour in hours if hour.workers is not None]
    p50, p95 = total.quantiles if total else (None, None)
    return PoolReport(
        pool=name,
        sla_seconds=profile.sla_seconds,
        quantile=profile.quantile,
        started=total.started if total else 0,
        late=total.late if total else 0,
        p50_seconds=p50,
        p95_seconds=p95,
        longest_seconds=total.longest if total else None,
        failed=failed,
        worker_hours=sum(measured) if measured else None,
        hours=tuple(hours),
        worst=tuple(worst),
        forecast=forecast,
    )


# --- rows of the lake ------------------------------------------------------------------------
def _of(frame: DataFrame, kind: type[Any], since: datetime, until: datetime) -> DataFrame:
    inside = f.col("at").between(f.lit(since), f.lit(until))
    recent = f.col("day") >= since.strftime("%Y-%m-%d")
    of_kind = (f.col("set") == KNOWN) & (f.col("event") == kind.__name__)
    return frame.where(of_kind & recent & inside)


def _started(
    events: DataFrame, pools: Mapping[str, Pool], since: datetime, until: datetime
) -> DataFrame:
    """``pool``, ``at``, ``waited`` and ``late`` (0 or 1)."""
    promised = _promised(pools)
    return (
        _of(events, JobStarted, since, until)
        .withColumn("pool", pool_of(f.col("queue"), pools))
        .select("pool", "at", f.col("pickup_seconds").alias("waited"))
        .withColumn("late", (f.col("waited") > promised).cast("int"))
    )


def _promised(pools: Mapping[str, Pool]) -> Column:
    usual = f.lit(PROFILES["balanced"].sla_seconds)
    for name, pool in pools.items():
        usual = f.when(f.col("pool") == name, f.lit(pool.profile.sla_seconds)).otherwise(usual)
    return usual


def _totals(started: DataFrame) -> DataFrame:
    return started.groupBy("pool").agg(
        f.count(f.lit(1)).alias("started"),
        f.sum("late").alias("late"),
        f.expr(f"percentile_approx(waited, {_SHARES})").alias("quantiles"),
        f.max("waited").alias("longest"),
    )


def _failed(
    events: DataFrame, pools: Mapping[str, Pool], since: datetime, until: datetime
) -> dict[str, int]:
    rows = _of(events, JobFailed, since, until).groupBy(pool_of(f.col("queue"), pools).alias("p"))
    return {row["p"]: row["count"] for row in rows.count().collect()}


def _minutes(came: DataFrame, until: datetime) -> defaultdict[str, dict[int, int]]:
    """Arrivals by pool and minute since 1970."""
    before = came.where(f.col("micros") < int(until.timestamp() * 1e6))
    minutes: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row in by_step(before, 60).toLocalIterator():
        minutes[row.pool][row.step] = row["count"]
    return minutes


def _by_hour(started: DataFrame) -> defaultdict[str, dict[int, Row]]:
    hour = f.floor(f.unix_seconds("at") / 3600).cast("long").alias("hour")
    rows = started.groupBy("pool", hour).agg(
        f.count(f.lit(1)).alias("n"), f.sum("late").alias("late")
    )
    hours: defaultdict[str, dict[int, Row]] = defaultdict(dict)
    for row in rows.collect():
        hours[row.pool][row.hour] = row
    return hours


def _workers(
    snapshots: DataFrame | None, summed: Minutes, since: datetime, until: datetime
) -> defaultdict[str, dict[int, float]]:
    """Ready workers by pool and hour: the mean of its minutes, those without snapshots as none."""
    workers: defaultdict[str, dict[int, float]] = defaultdict(dict)
    if snapshots is None:
        return workers
    minute = f.floor(f.unix_seconds("at") / 60).cast("long").alias("minute")
    mean = f.sum("sum") / f.sum("taken")
    means = _measured(snapshots, summed, since, until).groupBy("pool", minute)
    hour = f.floor(f.col("minute") / 60).cast("long").alias("hour")
    hours = means.agg(mean.alias("workers")).groupBy("pool", hour)
    for row in hours.agg(f.sum("workers").alias("sum")).collect():
        workers[row.pool][row.hour] = row["sum"] / 60
    return workers


def _measured(snapshots: DataFrame, summed: Minutes, since: datetime, until: datetime) -> DataFrame:
    """``pool``, ``at``, ``sum`` of ready workers and how many snapshots were ``taken``."""
    single = _of(summed.left(snapshots), PoolSnapshot, since, until).select(
        "pool", "at", f.col("workers_ready").cast("long").alias("sum"), f.lit(1).alias("taken")
    )
    if summed.rows is None:
        return single
    inside = f.col("start").between(f.lit(since), f.lit(until))
    recent = f.col("day") >= since.strftime("%Y-%m-%d")
    minutes = summed.rows.where(recent & inside).select(
        "pool",
        f.col("start").alias("at"),
        f.col("workers_sum").alias("sum"),
        f.col("snapshots").alias("taken"),
    )
    return single.unionByName(minutes)


def _worst(
    started: DataFrame, events: DataFrame, since: datetime, until: datetime
) -> dict[str, list[Moment]]:
    bucket = (f.floor(f.unix_seconds("at") / _MOMENT_SECONDS) * _MOMENT_SECONDS).cast("long")
    rows = (
        started.groupBy("pool", bucket.alias("start"))
        .agg(
            f.count(f.lit(1)).alias("started"),
            f.sum("late").alias("late"),
            f.max("waited").alias("longest"),
        )
        .where("late > 0")
        .withColumn(
            "place", f.expr("row_number() over (partition by pool order by late desc, start)")
        )
        .where(f.col("place") <= MOST_MOMENTS)
        .collect()
    )
    decisions = _decisions(events, rows, since, until)
    moments: defaultdict[str, list[Moment]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row.place):
        moment = Moment(
            at=datetime.fromtimestamp(row.start, UTC),
            started=row.started,
            late=row.late,
            longest_seconds=row.longest,
            decisions=tuple(_near(decisions[row.pool], row.start)),
        )
        moments[row.pool].append(moment)
    return moments


def _decisions(
    events: DataFrame, moments: Sequence[Row], since: datetime, until: datetime
) -> defaultdict[str, list[ScalingDecisionMade]]:
    """Decisions around the moments, by pool."""
    decisions: defaultdict[str, list[ScalingDecisionMade]] = defaultdict(list)
    if not moments:
        return decisions
    seconds = f.unix_seconds("at")
    near = f.lit(False)
    for row in moments:
        between = seconds.between(row.start - _BEFORE_SECONDS, row.start + _MOMENT_SECONDS)
        near |= (f.col("pool") == row.pool) & between
    recorded = _of(events, ScalingDecisionMade, since, until).where(near)
    for row in recorded.orderBy("at").select("body").toLocalIterator():
        made = msgspec.json.decode(row.body, type=ScalingDecisionMade)
        decisions[made.pool].append(made)
    return decisions


def _near(decisions: Iterable[ScalingDecisionMade], start: int) -> list[Decision]:
    """The first ones that changed the number, else the first ones."""
    begin, end = start - _BEFORE_SECONDS, start + _MOMENT_SECONDS
    near = [decision for decision in decisions if begin <= decision.at.timestamp() <= end]
    chosen = [decision for decision in near if decision.target != decision.current] or near
    return [
        Decision(
            id=decision.id,
            at=decision.at,
            current=decision.current,
            target=decision.target,
            strategy=decision.strategy,
            why=tuple(reason.text for reason in decision.reasons[-_MOST_REASONS:]),
        )
        for decision in chosen[:_MOST_DECISIONS]
    ]


def _forecasts(
    events: DataFrame, since: datetime, until: datetime
) -> dict[str, list[ForecastMade]]:
    """By pool, in order."""
    forecasts: defaultdict[str, list[ForecastMade]] = defaultdict(list)
    rows = _of(events, ForecastMade, since, until).orderBy("at").select("body")
    for row in rows.toLocalIterator():
        made = msgspec.json.decode(row.body, type=ForecastMade)
        forecasts[made.pool].append(made)
    return forecasts


def _judged(
    forecasts: Sequence[ForecastMade], counts: Mapping[int, int], until: datetime
) -> ForecastAccuracy | None:
    return judge(forecasts, counts, until.timestamp()) if forecasts else None


def _hours(
    since: datetime,
    until: datetime,
    minutes: Mapping[int, int],
    started: Mapping[int, Row],
    workers: Mapping[int, float],
) -> list[Hour]:
    came: defaultdict[int, int] = defaultdict(int)
    for minute, count in minutes.items():
        came[minute // 60] += count
    first, last = int(since.timestamp() // 3600), int(until.timestamp() // 3600)
    return [
        Hour(
            at=datetime.fromtimestamp(hour * 3600, UTC),
            arrivals=came[hour],
            started=started[hour].n if hour in started else 0,
            late=started[hour].late if hour in started else 0,
            workers=workers.get(hour),
        )
        for hour in range(first, last + 1)
    ]
