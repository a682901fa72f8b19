"""Recorded days of a real lake through the simulator on real Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
from pyspark.sql import SparkSession
from tests.integration import spark_probe
from tests.integration.pipeline.laking import MONDAY, job, land, rows

from penstock.config import Pool, Profile
from penstock.decider.simulator.model import traces
from penstock.decider.simulator.studies import tuning
from penstock.events.envelope import Event
from penstock.pipeline.analysis import whatif
from penstock.pipeline.analysis.whatif import Wanted, begin_hour

pytestmark = pytest.mark.spark

POOLS = {
    name: Pool(name=name, kind="queue", queues=(name,), profile=Profile(min_workers=0))
    for name in ("a", "b")
}


def days(queue: str, begin: datetime, count: int, jobs: int = 48) -> list[Event]:
    every = timedelta(days=1) / jobs
    return [
        event
        for number in range(count * jobs)
        for event in job(number, queue, begin + number * every, 5.0)
    ]


def test_each_day_of_each_pool_is_simulated_under_each_setting(spark: SparkSession) -> None:
    events = rows(spark, [*days("a", MONDAY, 2), *days("b", MONDAY, 1), *days("other", MONDAY, 1)])
    wanted = Wanted(lake="", since=MONDAY, until=MONDAY + timedelta(days=2))
    came = whatif.jobs(events, POOLS, wanted)
    one = partial(tuning.simulate, POOLS, {"warm": {"min_workers": 1}}, 2.0)
    found = list(whatif.spread(came, 24.0, one, tuning.Day))
    assert sorted((pool, day.setting, day.jobs) for pool, day in found) == [
        *[("a", "as it is", 48)] * 2,
        *[("a", "warm", 48)] * 2,
        ("b", "as it is", 48),
        ("b", "warm", 48),
    ]
    best = {row.pool: row.setting for row in tuning.sum_up(found, POOLS) if row.best}
    assert best == {"a": "as it is", "b": "as it is"}


def test_the_session_answers_no_other_process(spark: SparkSession) -> None:
    driver = psutil.Process(spark.sparkContext._gateway.proc.pid)
    reached = spark_probe.answers(driver)
    assert len(reached) >= 3  # Python's gateway, the driver's RPC, its block manager
    assert "answered" not in reached.values()
    assert spark.range(2).count() == 2


def test_hours_go_round_the_clock(spark: SparkSession) -> None:
    events = rows(spark, days("a", MONDAY, 12, jobs=24))
    wanted = Wanted(lake="", since=MONDAY, until=MONDAY + timedelta(days=12))
    seen: list[tuple[float, int]] = []

    def note(
        pool: str, origin: float, hours: float, arrivals: np.ndarray, services: np.ndarray
    ) -> list[tuning.Day]:
        assert (arrivals >= 0).all()
        assert (arrivals < hours * 3600).all()
        assert (services == 5.0).all()
        return [
            tuning.Day(
                setting=str(origin % 86_400 // 3600),
                hours=hours,
                jobs=len(arrivals),
                late=0,
                wait_p95_seconds=0,
                worker_seconds=0,
                actions=0,
            )
        ]

    for _, day in whatif.spread(whatif.jobs(events, POOLS, wanted), 2.0, note, tuning.Day):
        seen.append((float(day.setting), day.jobs))
    assert sorted(seen) == [(hour, 2) for hour in range(0, 24, 2)]
    assert [begin_hour(day, 24.0) for day in range(3)] == [0.0, 0.0, 0.0]


def test_the_page_about_simulating_exports_the_arrivals_of_a_queue(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(spark, tmp_path / "lake", "events", [*days("mails", MONDAY, 1), *days("b", MONDAY, 1)])
    page = (Path(__file__).parents[3] / "docs" / "simulating.md").read_text("utf-8")
    program = page.split("```python\n# own_arrivals.py\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(program.replace("lake/events", str(tmp_path / "lake" / "events")), {})
    trace = traces.read(tmp_path / "mails.csv", size="run_seconds")
    assert trace.origin == MONDAY.timestamp()
    assert list(np.diff(trace.times)) == [1800.0] * 47
    assert set(trace.columns["run_seconds"]) == {5.0}


def test_the_command_recommends_and_draws(
    spark: SparkSession, tmp_path: Path, penstock: Callable[..., str]
) -> None:
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    land(spark, tmp_path / "lake", "events", days("a", today - timedelta(days=2), 2))
    (tmp_path / "penstock.toml").write_text("[pools.a]\nmin_workers = 1\n[pools.b]\n")
    lake = ["--lake", str(tmp_path / "lake"), "--since", "2d", "--json"]
    said = penstock("tune", *lake, "--try", "min_workers=0,1", "--picture", "p.png")
    (found,) = json.loads(said)
    assert found["pool"] == "a"
    assert found["recommended"]["setting"] == "min_workers=0"
    assert found["recommended"]["worker_hours"] < found["as_it_is"]["worker_hours"]
    assert len(found["settings"]) == 3
    assert (tmp_path / "p.png").stat().st_size > 10_000
    change = ["--set", "pools.*.min_workers=0"]
    said = penstock("replay", "--on-spark", *lake, *change)
    replayed = {row["setting"]: row["days"] for row in json.loads(said)}
    assert replayed == {"as it is": 2, "instead": 2}
