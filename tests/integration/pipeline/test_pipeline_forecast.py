"""Forecasts of a real lake on real Spark, and heard where pools are measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline.laking import MONDAY, job, land, rows
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Outgoing
from penstock.config import Profile
from penstock.config.topology import pools
from penstock.events.envelope import Event, encode
from penstock.events.forecasting import ForecastMade
from penstock.events.subjects import Subjects
from penstock.measuring.trained import Curve
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.listeners import ForecastListener
from penstock.pipeline.analysis.forecasts import Wanted, of_events
from penstock.pipeline.core.forecast import Plan

HOURLY = Plan(step_seconds=3600, horizon_steps=24)
DAYS = 8


def by_day(queue: str, at: datetime = MONDAY, days: int = DAYS) -> list[Event]:
    """Busy from 8 to 16 o'clock."""
    noise = np.random.default_rng(1)
    found: list[Event] = []
    for hour in range(days * 24):
        usual = 20 if 8 <= hour % 24 < 16 else 1
        for number in range(noise.poisson(usual)):
            found += job(len(found), queue, at + timedelta(hours=hour, seconds=60 * number))
    return found


@pytest.mark.spark
def test_pools_of_the_lake_are_forecast_each_by_its_own_queues(
    spark: SparkSession, settings: MakeSettings
) -> None:
    known = pools(
        settings(
            pools={
                "both": {"kind": "group", "queues": ["a", "b"]},
                "silent": {"queues": ["c"], "forecast": "off"},
            }
        )
    )
    events = rows(spark, [*by_day("a"), *by_day("b"), *by_day("c")])
    end = MONDAY + timedelta(days=DAYS)
    wanted = Wanted(lake="", plan=HOURLY, until=end, weeks=2)
    made = {one.pool: one for one in of_events(events, known, wanted)}
    assert set(made) == {"both"}
    both = made["both"]
    assert (both.starts_at, both.trained_until, both.origins) == (end, end, 5)
    assert sum(both.mean_per_second[8:16]) * 3600 / 8 == pytest.approx(40, rel=0.2)
    assert max(both.mean_per_second[:7]) * 3600 < 8
    upper = zip(both.p80_per_second, both.p99_per_second, strict=True)
    assert all(low <= high for low, high in upper)
    with pytest.raises(ValueError, match="no job came for none within"):
        list(of_events(events, known, Wanted(lake="", pool="none", plan=HOURLY, until=end)))


@pytest.mark.spark
def test_the_command_publishes_what_the_metrics_service_hears(
    spark: SparkSession,
    settings: MakeSettings,
    tmp_path: Path,
    penstock: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = datetime.now(UTC) - timedelta(days=6)
    land(spark, tmp_path, "events", by_day("a", start, days=6))
    given = settings(pools={"a": {}})
    monkeypatch.setenv("PENSTOCK_NATS__URL", given.nats.url)
    monkeypatch.setenv("PENSTOCK_PREFIX", given.prefix)
    wanted = ("--lake", str(tmp_path), "--step", "60m", "--json")
    (forecast,) = json.loads(penstock("pipeline", "forecast", *wanted))
    assert forecast["pool"] == "a"
    assert forecast["origins"] >= 2

    async def is_received() -> None:
        bus = await connect(given)
        meter = PoolMeter("a", [], Profile())
        following = asyncio.create_task(
            ForecastListener(bus, Subjects(given.prefix), {"a": meter}).follow()
        )
        try:
            await eventually(lambda: curve_of(meter), 20)
        finally:
            following.cancel()
            await bus.close()

    if not forecast["off"]:
        asyncio.run(is_received())


async def test_what_cannot_be_read_and_what_helps_nobody_is_no_forecast(
    settings: MakeSettings,
) -> None:
    given = settings(pools={"a": {}})
    subjects, bus = Subjects(given.prefix), await connect(given)
    meter = PoolMeter("a", [], Profile())
    following = asyncio.create_task(ForecastListener(bus, subjects, {"a": meter}).follow())
    try:
        subject = subjects.event(made())
        await bus.append(Outgoing(subject, encode(made())))
        curve = await eventually(lambda: curve_of(meter), 10)
        for body in (b"no json", encode(made("b"))):
            await bus.append(Outgoing(subject, body))
        await bus.append(Outgoing(subject, encode(made())))
        await eventually(lambda: curve_of(meter) is not curve, 10)
        await bus.append(Outgoing(subject, encode(made(off="worse"))))
        await eventually(lambda: curve_of(meter) is None, 10)
    finally:
        following.cancel()
        await bus.close()


def curve_of(meter: PoolMeter) -> Curve | None:
    assert meter._forecaster
    return meter._forecaster._trained.curve


def made(pool: str = "a", off: str = "") -> ForecastMade:
    rates = (1.0,) * 3
    return ForecastMade(
        pool=pool,
        model="harmonic",
        starts_at=datetime.now(UTC),
        step_seconds=60,
        mean_per_second=rates,
        p80_per_second=rates,
        p95_per_second=rates,
        p99_per_second=rates,
        trained_since=datetime.now(UTC),
        trained_until=datetime.now(UTC),
        off=off,
    )
