"""A report of a real lake on real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline.laking import MONDAY, land, rows

from penstock.config import Pool, Profile
from penstock.events.envelope import Event
from penstock.events.forecasting import ForecastMade
from penstock.events.job import JobDispatched, JobStarted
from penstock.events.scaling import Reason, ScalingDecisionMade
from penstock.events.snapshot import PoolSnapshot
from penstock.pipeline.analysis.reporting import gather
from penstock.pipeline.pages.page import page

pytestmark = pytest.mark.spark

POOLS = {"a": Pool(name="a", kind="queue", queues=("a",), profile=Profile(sla_seconds=10.0))}
END = MONDAY + timedelta(hours=6)


def started(number: int, waited: float, begun: datetime = MONDAY) -> list[Event]:
    """A job each minute."""
    at = begun + timedelta(minutes=number)
    where = {"queue": "a", "host": "h", "worker": "w"}
    came = JobDispatched(job_id=f"j{number}", queue="a", function="f", payload=b"", at=at)
    began = at + timedelta(seconds=waited)
    return [
        came,
        JobStarted(job_id=f"j{number}", attempt=1, pickup_seconds=waited, at=began, **where),
    ]


def decided(minute: int, current: int, target: int) -> ScalingDecisionMade:
    return ScalingDecisionMade(
        pool="a",
        at=MONDAY + timedelta(minutes=minute, seconds=1),
        current=current,
        target=target,
        reasons=(Reason(step="strategy", rule="deadline", workers=target, text="a job waits"),),
        strategy="deadline",
        sla_seconds=10.0,
    )


def foretold() -> ForecastMade:
    rates = (1 / 60,) * 60
    return ForecastMade(
        pool="a",
        at=MONDAY,
        model="harmonic",
        starts_at=MONDAY,
        step_seconds=60,
        mean_per_second=rates,
        p80_per_second=rates,
        p95_per_second=rates,
        p99_per_second=rates,
        trained_since=MONDAY,
        trained_until=MONDAY,
    )


def test_what_was_promised_what_was_kept_and_what_it_cost(spark: SparkSession) -> None:
    waits = [90.0 if 100 <= number < 103 else 1.0 for number in range(240)]
    jobs = [event for number, wait in enumerate(waits) for event in started(number, wait)]
    told = [decided(1, 1, 2), decided(99, 2, 2), decided(101, 2, 5), decided(200, 5, 1)]
    snapshots = [
        PoolSnapshot(pool="a", queues=("a",), waiting=0, workers_ready=2, at=jobs[0].at + each)
        for each in (
            timedelta(minutes=minute, seconds=30 * half) for minute in range(90) for half in (0, 1)
        )
    ]
    events = rows(spark, [*jobs, *told, foretold()])
    found = gather(events, rows(spark, snapshots), POOLS, MONDAY, END)
    (pool,) = found.pools
    assert (pool.started, pool.late, pool.kept) == (240, 3, True)
    assert (pool.p50_seconds, pool.longest_seconds) == (1.0, 90.0)
    assert pool.worker_hours == pytest.approx(2 * 1.5)
    assert sum(hour.arrivals for hour in pool.hours) == 240
    worst = pool.worst[0]
    assert (worst.late, worst.started, worst.longest_seconds) == (3, 5, 90.0)
    assert [(each.current, each.target) for each in worst.decisions] == [(2, 5)]
    assert pool.forecast is not None
    assert (pool.forecast.steps, pool.forecast.covered["0.95"]) == (60, 1.0)
    assert "a job waits" in page(found)


def test_without_snapshots_or_forecasts_it_says_what_it_knows(spark: SparkSession) -> None:
    found = gather(rows(spark, started(0, 1.0)), None, {}, MONDAY, END)
    (pool,) = found.pools
    assert (pool.pool, pool.started, pool.worker_hours, pool.forecast) == ("a", 1, None, None)
    assert pool.worst == ()


def test_the_command_tells_the_same_as_a_table_as_json_and_as_a_page(
    spark: SparkSession, tmp_path: Path, penstock: Callable[..., str]
) -> None:
    now = datetime.now(UTC)
    begun = now - timedelta(hours=2)
    jobs = [event for number in range(20) for event in started(number, 50.0, begun)]
    land(spark, tmp_path, "events", jobs)
    (tmp_path / "penstock.toml").write_text("[pools.a]\nsla_seconds = 10\n", "utf-8")
    out = tmp_path / "week.html"
    said = partial(penstock, "report", "--lake", str(tmp_path))

    (pool,) = json.loads(said("--since", "1d", "--json"))["pools"]
    assert (pool["pool"], pool["kept"], pool["started"], pool["late"]) == ("a", False, 20, 20)
    assert "NO" in said("--out", str(out))
    assert "data:image/png" in out.read_text("utf-8")
    assert json.loads(said("--since", "1m", "--json"))["pools"] == []
