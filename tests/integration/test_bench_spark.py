"""`penstock.testing` with real Spark."""

from __future__ import annotations

import pytest

from penstock.jobs import Context, job, registry
from penstock.testing import Bench


@job
def count_rows(context: Context, rows: int) -> int:
    return context.spark.range(rows).count()


@job
def sum_of_odd(context: Context, rows: int) -> int:
    from pyspark.sql import functions

    odd = context.spark.range(rows).where(functions.col("id") % 2 == 1)
    return int(odd.agg(functions.sum("id")).first()[0])


@pytest.mark.spark
@pytest.mark.usefixtures("penstock_spark")
async def test_a_job_gets_real_spark_where_the_test_asks_for_it(penstock: Bench) -> None:
    registry.REGISTRY[count_rows.name] = count_rows
    job_id = await penstock.client.dispatch(count_rows(rows=7))
    await penstock.run_pending(timeout_seconds=120)
    assert (await penstock.client.job(job_id)).result == 7


@pytest.mark.spark
@pytest.mark.usefixtures("penstock_spark")
async def test_functions_of_spark_work_in_a_test_as_in_a_worker(penstock: Bench) -> None:
    registry.REGISTRY[sum_of_odd.name] = sum_of_odd
    job_id = await penstock.client.dispatch(sum_of_odd(rows=6))
    await penstock.run_pending(timeout_seconds=120)
    assert (await penstock.client.job(job_id)).result == 1 + 3 + 5
