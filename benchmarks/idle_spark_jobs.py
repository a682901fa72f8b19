"""The same, for a host whose jobs use Spark."""

from __future__ import annotations

from penstock.jobs import Context, job


@job(queue="default", timeout_seconds=300.0)
def first_on_spark(context: Context, rows: int) -> int:
    return int(context.spark.range(rows).count())
