"""Metrics that jobs record themselves, asserted on in a user's test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.jobs import Backoff, Context, job, registry
from penstock.testing import Bench, SyncBench


@job(queue="orders", tries=2, backoff=Backoff(first_seconds=600))
def load(context: Context, table: str, rows: int) -> None:
    context.metrics.counter("rows_loaded", rows, {"table": table})
    context.metrics.gauge("last_rows", rows)
    context.metrics.histogram("rows_a_job", rows)
    if context.attempt == 1 and table == "broken":
        raise ConnectionError("away")


@pytest.fixture(autouse=True)
def known() -> Iterator[None]:
    registry.REGISTRY[load.name] = load
    yield
    del registry.REGISTRY[load.name]


async def test_values_of_all_attempts_add_up(penstock: Bench) -> None:
    await penstock.client.dispatch(load(table="orders", rows=5))
    await penstock.run_pending()
    await penstock.client.dispatch(load(table="broken", rows=2))
    await penstock.run_pending()
    penstock.assert_metric("rows_loaded", 9)
    penstock.assert_metric("rows_loaded", 5, table="orders")
    penstock.assert_metric("last_rows", 2)
    assert penstock.assert_metric("rows_a_job") == 3


def test_a_failing_assertion_says_what_was_recorded(penstock_sync: SyncBench) -> None:
    with pytest.raises(AssertionError, match="recorded: nothing"):
        penstock_sync.assert_metric("rows_loaded")
    penstock_sync.client.dispatch(load(table="orders", rows=5))
    penstock_sync.run_pending()
    penstock_sync.assert_metric("rows_loaded", 5)
    with pytest.raises(AssertionError, match=r"found 5; recorded: .*table='orders'"):
        penstock_sync.assert_metric("rows_loaded", 6)
    with pytest.raises(AssertionError, match="expected the metric rows_loaded"):
        penstock_sync.assert_metric("rows_loaded", table="customers")
