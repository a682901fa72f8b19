"""Rows of the lake as rows of the rollups, and rows of the rollups put together."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock.events.job import (
    JobCancelled,
    JobCompleted,
    JobDead,
    JobDispatched,
    JobFailed,
    JobRecovered,
    JobReleased,
    JobRetrying,
    JobRevived,
    JobStarted,
)
from penstock.events.snapshot import PoolSnapshot
from penstock.pipeline.core.rolled import Promise
from penstock.pipeline.core.rollup import GRAINS, JOBS, POOLS, SHARES, SKETCH_K, Table

OPEN = "job_id string, queue string, function string"
_BEGINS = (JobDispatched, JobRevived)
_ENDS = (JobCompleted, JobDead, JobCancelled)
_COUNTS = {
    "arrivals": _BEGINS,
    "started": (JobStarted,),
    "completed": (JobCompleted,),
    "failed": (JobFailed,),
    "dead": (JobDead,),
    "cancelled": (JobCancelled,),
    "lost": (JobReleased, JobRecovered),
}
_MINUTE_SECONDS = 60.0


def known_jobs(events: DataFrame, before: DataFrame) -> DataFrame:
    """Jobs with queue and function: those of before, and those that begin in these events."""
    begun = events.where(_is(*_BEGINS)).select("job_id", "queue", "function", "stream_sequence")
    both = begun.unionByName(before.withColumn("stream_sequence", f.lit(0).cast("bigint")))
    newest = f.max_by(f.struct("queue", "function"), "stream_sequence")
    return both.groupBy("job_id").agg(newest.alias("_job")).select("job_id", "_job.*")


def still_open(jobs: DataFrame, events: DataFrame) -> DataFrame:
    """The known jobs whose end is not among these events, or which were revived after it."""
    turns = events.where(_is(*_BEGINS, *_ENDS)).groupBy("job_id")
    last = turns.agg(f.max_by("event", "stream_sequence").alias("event"))
    return jobs.join(last.where(_is(*_ENDS)), "job_id", "left_anti")


def job_minutes(
    events: DataFrame, jobs_before: DataFrame, promises: Mapping[str, Promise], spark: SparkSession
) -> DataFrame:
    """Rows of the table ``jobs`` by the minute, of these events alone.

    Args:
        promises: by queue.
    """
    rows = [(queue, one.pool, one.sla_seconds) for queue, one in promises.items()]
    pools = spark.createDataFrame(rows, "queue string, pool string, sla_seconds double")
    jobs = jobs_before.withColumnsRenamed({"queue": "_queue", "function": "_function"})
    rows_of_jobs = (
        events.where(_is(*{one for some in _COUNTS.values() for one in some}, JobRetrying))
        .join(jobs, "job_id", "left")
        .withColumn("queue", f.coalesce(_given("queue"), "_queue", f.lit("")))
        .withColumn("function", f.coalesce(_given("function"), "_function", f.lit("")))
        .join(f.broadcast(pools), "queue", "left")
        .withColumn("pool", f.coalesce("pool", "queue"))
        .withColumn("start", f.date_trunc("minute", _happened()))
    )
    pickup = f.when(_is(JobStarted), f.coalesce("pickup_seconds", f.lit(0.0)))
    run = f.when(_is(JobCompleted, JobFailed), f.coalesce("run_seconds", f.lit(0.0)))
    spark_cpu = f.get_json_object("spark_cost", "$.cpu_seconds").cast("double")
    return rows_of_jobs.groupBy(*JOBS.keys).agg(
        *(f.count_if(_is(*events)).alias(name) for name, events in _COUNTS.items()),
        f.count_if(pickup > f.col("sla_seconds")).alias("late"),
        f.count_if(_is(JobRetrying) & (f.coalesce("put_off", f.lit("")) == "")).alias("retried"),
        *_distribution("pickup", pickup),
        *_distribution("run", run),
        f.coalesce(f.sum("cpu_seconds"), f.lit(0.0)).alias("cpu_seconds"),
        f.coalesce(f.sum(spark_cpu), f.lit(0.0)).alias("spark_cpu_seconds"),
    )


def pool_minutes(snapshots: DataFrame) -> DataFrame:
    """Rows of the table ``pools`` by the minute, of these snapshots alone."""
    workers, waiting = (f.coalesce(name, f.lit(0)) for name in ("workers_ready", "waiting"))
    taken = snapshots.where(_is(PoolSnapshot)).withColumn("start", f.date_trunc("minute", "at"))
    return taken.groupBy(*POOLS.keys).agg(
        f.count(f.lit(1)).alias("snapshots"),
        f.sum(workers).alias("workers_sum"),
        f.max(workers).alias("workers_max"),
        f.sum(waiting).alias("waiting_sum"),
        f.max(waiting).alias("waiting_max"),
        f.coalesce(f.max("oldest_waiting_seconds"), f.lit(0.0)).alias("oldest_max_seconds"),
    )


def grains(table: Table, minutes: DataFrame) -> DataFrame:
    """Minutes that were counted in parts, put together, with the hours and days they make."""
    whole = _together(table, minutes, "minute")
    coarse = [_together(table, whole, grain) for grain in GRAINS if grain != "minute"]
    all_grains = whole.withColumn("grain", f.lit("minute"))
    for rows, grain in zip(coarse, GRAINS[1:], strict=True):
        all_grains = all_grains.unionByName(rows.withColumn("grain", f.lit(grain)))
    return all_grains.withColumn("day", f.date_format("start", "yyyy-MM-dd"))


def _together(table: Table, rows: DataFrame, grain: str) -> DataFrame:
    summed = table.named("sum") + ([] if grain == "minute" else _costs(table))
    merged = (
        rows.withColumn("start", f.date_trunc(grain, "start"))
        .groupBy(*table.keys)
        .agg(
            *(f.sum(name).alias(name) for name in summed),
            *(f.max(name).alias(name) for name in table.named("max")),
            *(f.kll_merge_agg_double(n, SKETCH_K).alias(n) for n in table.named("sketch")),
        )
    )
    return _derived(table, merged, grain).select(*table.columns)


def _costs(table: Table) -> list[str]:
    return ["worker_seconds"] if "worker_seconds" in table.columns else []


def _derived(table: Table, rows: DataFrame, grain: str) -> DataFrame:
    if _costs(table):
        mean = f.col("workers_sum") / f.col("snapshots")
        seconds = mean * _MINUTE_SECONDS if grain == "minute" else f.col("worker_seconds")
        return rows.withColumn("worker_seconds", seconds)
    for sketch in table.named("sketch"):
        of = sketch.removesuffix("_sketch")
        for name, share in SHARES.items():
            value = f.kll_sketch_get_quantile_double(sketch, f.lit(share))
            holds = f.kll_sketch_get_n_double(sketch) > 0
            rows = rows.withColumn(f"{of}_{name}_seconds", f.when(holds, value))
    return rows


def _distribution(of: str, seconds: Column) -> list[Column]:
    nothing = f.lit(0.0)
    return [
        f.coalesce(f.sum(seconds), nothing).alias(f"{of}_seconds"),
        f.coalesce(f.sum(seconds * seconds), nothing).alias(f"{of}_squares"),
        f.kll_sketch_agg_double(seconds, SKETCH_K).alias(f"{of}_sketch"),
    ]


def _is(*events: type) -> Column:
    return f.col("event").isin([event.__name__ for event in events])


def _given(name: str) -> Column:
    """The column, null where an event that could name it did not, as older events do."""
    return f.nullif(f.col(name), f.lit(""))


def _happened() -> Column:
    """A delayed job arrives when it is due; of other events ``due_at`` says something else."""
    return f.when(_is(*_BEGINS), f.greatest("at", "due_at")).otherwise(f.col("at"))
