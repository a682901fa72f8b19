"""`penstock.testing` with real Spark."""

from __future__ import annotations

import pytest

from penstock.jobs import Context, job, registry
from penstock.testing import Bench


@job
def count_rows(context: Context, rows: int) -> int:
    return context.spark.range(rows).count()


@pytest.mark.spark
@pytest.mark.usefixtures("penstock_spark")
async def test_a_job_gets_real_spark_where_the_test_asks_for_it(penstock: Bench) -> None:
    registry.REGISTRY[count_rows.name] = count_rows
    job_id = await penstock.client.dispatch(count_rows(rows=7))
    await penstock.run_pending(timeout_seconds=120)
    assert (await penstock.client.job(job_id)).result == 7
