"""Jobs as the lake knows them: when each could start, for which pool, and how long it ran."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from itertools import chain

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.config import Pool
from penstock.events.job import JobCompleted, JobDispatched, JobRevived
from penstock.pipeline.events import KNOWN
from penstock.pipeline.lake.rollups import Minutes

ARRIVE = (JobDispatched.__name__, JobRevived.__name__)


def arrivals(events: DataFrame, pools: Mapping[str, Pool], since: datetime) -> DataFrame:
    """A row each job that came since then: ``pool``, ``job_id`` and ``micros`` (POSIX).

    A delayed job comes when it is due. A queue that no pool serves is a pool of its own.
    """
    recent = _recent(events, since, ARRIVE)
    due = f.coalesce("due_at", "at")
    return recent.where(due >= f.lit(since)).select(
        pool_of(f.col("queue"), pools).alias("pool"),
        "job_id",
        f.unix_micros(due).alias("micros"),
    )


def arrived(
    events: DataFrame, summed: Minutes, pools: Mapping[str, Pool], since: datetime
) -> DataFrame:
    """``pool``, ``micros`` and ``count``: by the minute as far as these are summed up."""
    came = arrivals(summed.left(events), pools, since)
    single = came.select("pool", "micros", f.lit(1).cast("long").alias("count"))
    if summed.rows is None:
        return single
    recent = (f.col("day") >= since.strftime("%Y-%m-%d")) & (f.col("start") >= f.lit(since))
    minutes = summed.rows.where(recent & (f.col("arrivals") > 0)).select(
        pool_of(f.col("queue"), pools).alias("pool"),
        f.unix_micros("start").alias("micros"),
        f.col("arrivals").alias("count"),
    )
    return single.unionByName(minutes)


def by_step(came: DataFrame, step_seconds: int) -> DataFrame:
    """``pool``, ``step`` (its number since 1970) and ``count``, of rows of `arrived`."""
    step = f.floor(f.col("micros") / (step_seconds * 1_000_000)).cast("long")
    return came.groupBy("pool", step.alias("step")).agg(f.sum("count").alias("count"))


def run_times(events: DataFrame, since: datetime) -> DataFrame:
    """``job_id`` and ``run_seconds`` of the jobs that ended well since then."""
    done = _recent(events, since, (JobCompleted.__name__,))
    return done.groupBy("job_id").agg(f.max("run_seconds").alias("run_seconds"))


def pool_of(queue: Column, pools: Mapping[str, Pool]) -> Column:
    owners = [(name, pool.name) for pool in pools.values() for name in pool.queues]
    if not owners:
        return queue
    owner_of = f.create_map(*(f.lit(text) for text in chain.from_iterable(owners)))
    return f.coalesce(f.try_element_at(owner_of, queue), queue)


def _recent(events: DataFrame, since: datetime, names: tuple[str, ...]) -> DataFrame:
    return events.where(
        (f.col("set") == KNOWN)
        & f.col("event").isin(*names)
        & (f.col("day") >= since.strftime("%Y-%m-%d"))
    )
