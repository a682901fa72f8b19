"""A long shuffle on a shrinking cluster: no task is lost, and the sum is right."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from tests.integration.executing import Stage, stage
from tests.integration.spark_cluster import (
    Running,
    application,
    below,
    cluster_tables,
    kill,
    master,
)
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.worker import WorkerReady, WorkerReport, WorkerStarted, WorkerStopped
from penstock.spark.master import MasterAway

pytestmark = [pytest.mark.spark, pytest.mark.long]

SHUFFLE = """
import json
from urllib.request import urlopen
slow = "reflect('java.lang.Thread', 'sleep', 300L) AS slept"
maps = spark.range(0, 120, 1, 120).selectExpr("id", "id % 12 AS k", slow)
sums = maps.groupBy("k").sum("id").withColumnRenamed("sum(id)", "total")
total = sums.selectExpr("total", slow).groupBy().sum("total").collect()[0][0]
api = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
executors = json.load(urlopen(f"{api}/allexecutors"))
stages = json.load(urlopen(f"{api}/stages"))
print("TOLD", json.dumps({
    "total": total,
    "failed": sum(e["failedTasks"] for e in executors),
    "executors": len(executors) - 1,
    "again": max(s["attemptId"] for s in stages),
}))
"""
PATIENT = {"drain_seconds": 60.0}
QUIET = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "12"}


async def test_no_task_is_lost_when_the_executor_dies_and_its_follower_ends_two_of_three_workers(
    settings: MakeSettings, tmp_path: Path
) -> None:
    tables = {**cluster_tables(tmp_path), "host": PATIENT}
    log = tmp_path / "app.log"
    with master(tables) as cluster:
        async with stage(settings, **tables) as host:
            executor = host.start()
            await host.command({"etl": 3})
            await host.seen(WorkerReady, 3, within=90)
            with application(cluster.settings, SHUFFLE, log, **QUIET) as app:
                await eventually(lambda: _executors(host) == 3, 90)
                await eventually(lambda: _has_finished(cluster, 6), 120)
                kill(executor.pid)
                host.start()
                await host.seen(WorkerReady, 6, within=30)
                await host.command({"etl": 1})
                stopped = await host.seen(WorkerStopped, 2, within=90)
                assert [each.cause for each in stopped] == ["scaled-down"] * 2
                await eventually(lambda: app.exit_code is not None, 120)
                assert app.exit_code == 0

    [line] = [each for each in log.read_text().splitlines() if each.startswith("TOLD")]
    told = json.loads(line.removeprefix("TOLD"))
    assert told == {"total": 119 * 120 // 2, "failed": 0, "executors": 3, "again": 0}


async def test_idle_workers_go_before_those_with_tasks(
    settings: MakeSettings, tmp_path: Path
) -> None:
    """The busy one is the youngest: without the look at its tasks it would go first."""
    tables = {**cluster_tables(tmp_path), "host": PATIENT}
    one = {"spark.cores.max": "1"}
    hold = "import time; time.sleep(300)"  # it has an executor, and no task
    with master(tables) as cluster:
        async with stage(settings, **tables) as host:
            states = await _states(host)
            host.start()
            await host.command({"etl": 1})
            [old] = await host.seen(WorkerReady, within=90)
            with application(cluster.settings, hold, tmp_path / "holder.log", **one):
                await eventually(lambda: _executors(host) == 1, 90)
                await host.command({"etl": 2})
                _, young = await host.seen(WorkerReady, 2, within=90)
                log, conf = tmp_path / "app.log", {**one, **QUIET}
                with application(cluster.settings, SHUFFLE, log, **conf) as app:
                    both = {old.worker: "idle", young.worker: "busy"}
                    await eventually(lambda: states == both, 90)
                    await host.command({"etl": 1})
                    [stopped] = await host.seen(WorkerStopped, within=60)
                    assert stopped.worker == old.worker
                    await eventually(lambda: app.exit_code == 0, 120)


async def _states(host: Stage) -> dict[str, str]:
    """What each worker last said, as it changes."""
    states: dict[str, str] = {}

    def hear(_: str, body: bytes) -> None:
        report = msgspec.json.decode(body, type=WorkerReport)
        states[report.worker] = report.state

    await host.bus.listen(host.subjects.worker_report(host.host, "*"), hear)
    return states


def _executors(host: Stage) -> int:
    return sum(len(below(each.pid)) for each in host.of(WorkerStarted))


async def _has_finished(cluster: Running, tasks: int) -> bool:
    """Asked twice a second: a driver that is asked without a pause gets nothing else done."""
    await asyncio.sleep(0.5)
    with suppress(MasterAway):  # on a busy machine it may be slow to answer
        view = await asyncio.to_thread(cluster.view)
        told = [cluster.master.executors(app.id) for app in view.activeapps]
        return sum(each.completed_tasks for executors in told for each in executors) > tasks
    return False
