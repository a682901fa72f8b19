"""The rollups of a lake: of what landed since, however late, and the same whatever was repeated."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline.landing import Tap, catch_up
from tests.making import MakeSettings

from penstock.config import Pool, Profile, Settings
from penstock.events.envelope import Event, encode
from penstock.events.job import (
    JobCompleted,
    JobDead,
    JobDispatched,
    JobError,
    JobFailed,
    JobRetrying,
    JobStarted,
    SparkCost,
)
from penstock.events.snapshot import PoolSnapshot
from penstock.pipeline.analysis.reporting import gather
from penstock.pipeline.app import PARTS
from penstock.pipeline.core.rolled import Promise, State
from penstock.pipeline.core.rollup import TABLES
from penstock.pipeline.lake.claim import claimed
from penstock.pipeline.lake.rollups import Rollups, rollups_folder
from penstock.pipeline.lake.table import Lake

pytestmark = pytest.mark.spark

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
PROMISES = {"q": Promise("p", 5.0)}
POOLS = {"p": Pool(name="p", kind="queue", queues=("q",), profile=Profile(sla_seconds=5.0))}


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def job(name: str, at: float, wait: float, run: float, *, ends: bool = True) -> list[Event]:
    """A job's life: dispatched, started ``wait`` later, and perhaps completed ``run`` later."""
    who: dict[str, Any] = {"job_id": name, "queue": "q"}
    cost = SparkCost(cpu_seconds=2.0)
    begin, end = after(at + wait), after(at + wait + run)
    started = JobStarted(at=begin, **who, attempt=1, host="h", worker="w", pickup_seconds=wait)
    done = JobCompleted(at=end, **who, attempt=1, run_seconds=run, cpu_seconds=1, spark_cost=cost)
    dispatched = JobDispatched(at=after(at), **who, function="f", payload=b"")
    return [dispatched, started, *([done] if ends else [])]


class Site:
    """A lake with rollups, and the streams it is filled from."""

    def __init__(self, spark: SparkSession, water: Tap, settings: Settings, folder: Path) -> None:
        self.spark, self.water, self.settings, self.folder = spark, water, settings, folder
        for part in PARTS:
            water.make(f"{settings.prefix}_{part.upper()}", f"{settings.prefix}.{part}.>")

    def land(self, part: str, *events: Event) -> None:
        prefix = self.settings.prefix
        bodies = [encode(event) for event in events]
        self.water.fill(f"{prefix}.{part}.a.b.c", bodies)
        catch_up(self.spark, self.settings, self.folder, part=part)

    def refresh(self) -> State:
        with claimed(rollups_folder(self.spark, str(self.folder))) as claim:
            lakes = {
                part: Lake(self.spark, str(self.folder / part), types)
                for part, types in PARTS.items()
            }
            return Rollups(self.spark, str(self.folder), claim).refresh(lakes, PROMISES)

    def rows(self, table: str, grain: Any = "minute") -> list[dict[str, Any]]:
        found = Rollups(self.spark, str(self.folder)).read(table, grain)
        assert set(TABLES[table].columns) | {"grain", "day"} == set(found.columns)
        return [row.asDict() for row in found.orderBy(*TABLES[table].keys).collect()]


@pytest.fixture
def site(spark: SparkSession, water: Tap, settings: MakeSettings, tmp_path: Path) -> Site:
    return Site(spark, water, settings(), tmp_path)


def having(row: dict[str, Any], **wanted: Any) -> bool:
    found = {name: row[name] for name in wanted}
    assert found == wanted
    return True


def test_jobs_are_summed_up_by_when_things_happened_however_late_they_came(site: Site) -> None:
    died = [
        JobFailed(
            at=after(70),
            job_id="b",
            queue="q",
            attempt=1,
            run_seconds=4.0,
            error=JobError(kind="E", message="m"),
        ),
        JobRetrying(at=after(70), job_id="b", attempt=2, due_at=after(80)),
    ]
    site.land("events", *job("a", 0, 1.0, 10.0), *job("b", 30, 6.0, 0.0, ends=False), *died)
    site.refresh()
    first, second = site.rows("jobs")
    assert having(first, pool="p", queue="q", function="f", arrivals=2, started=2, late=1)
    assert having(first, completed=1, run_seconds=10.0, cpu_seconds=1.0, spark_cpu_seconds=2.0)
    assert having(first, pickup_seconds=7.0, pickup_p50_seconds=1.0, pickup_p99_seconds=6.0)
    assert having(second, start=after(60).replace(tzinfo=None), function="f", arrivals=0)
    assert having(second, failed=1, retried=1, run_seconds=4.0, pickup_p50_seconds=None)

    late = job("c", 5, 2.0, 3.0)
    dead = JobDead(at=after(200), job_id="b", queue="q", error=JobError(kind="E", message="m"))
    site.land("events", *late, dead)
    site.refresh()
    first, _, last = site.rows("jobs")
    assert having(first, arrivals=3, completed=2, late=1, pickup_p50_seconds=2.0)
    assert having(last, dead=1, function="f")  # known though its dispatch was taken in before
    (day,) = site.rows("jobs", "day")
    assert having(day, start=datetime(2026, 1, 31), arrivals=3, dead=1, run_p99_seconds=10.0)


def test_forecasts_and_reports_take_what_is_summed_up_and_the_rest_of_events(site: Site) -> None:
    came = [event for n in range(60) for event in job(f"a{n}", 40.0 * n, 1.0, 5.0)]
    seen = [
        PoolSnapshot(pool="p", queues=("q",), waiting=0, workers_ready=n % 3, at=after(20.0 * n))
        for n in range(120)
    ]
    until = after(7200)
    site.land("events", *came[:99])
    site.land("snapshots", *seen[:50])
    site.refresh()
    site.land("events", *came[99:])
    site.land("snapshots", *seen[50:])
    lakes = {part: Lake(site.spark, str(site.folder / part), []) for part in PARTS}
    events, snapshots = (lakes[part].read() for part in PARTS)
    rollups = Rollups(site.spark, str(site.folder))
    summed = {part: rollups.minutes(part) for part in PARTS}
    assert summed["events"].left(events).count() == len(came) - 99
    assert gather(events, snapshots, POOLS, NOON, until, summed) == gather(
        events, snapshots, POOLS, NOON, until
    )


def test_nothing_counts_twice_when_repeated_or_cut_off(site: Site) -> None:
    site.land("events", *job("a", 0, 1.0, 10.0))
    before = site.refresh()
    assert site.refresh() == before

    days = site.folder / "rollups" / "jobs" / "grain=minute" / "day=2026-01-31"
    (counts,) = days.iterdir()
    shutil.copytree(counts, days / "version=000002-9")  # as a crash right before the end leaves it
    site.land("events", *job("b", 1, 1.0, 10.0))
    site.refresh()
    assert having(site.rows("jobs")[0], arrivals=2, started=2)
    assert [path.name for path in days.iterdir()] == ["version=000002-3"]


def test_pools_cost_the_workers_that_were_ready(site: Site) -> None:
    def shot(at: float, ready: int, waiting: int) -> PoolSnapshot:
        return PoolSnapshot(
            at=after(at), pool="p", queues=("q",), waiting=waiting, workers_ready=ready
        )

    site.land("snapshots", shot(1, 2, 5), shot(30, 4, 0), shot(61, 1, 1))
    site.refresh()
    first, second = site.rows("pools")
    assert having(first, worker_seconds=180.0, workers_max=4, waiting_max=5, snapshots=2)
    assert having(second, worker_seconds=60.0)
