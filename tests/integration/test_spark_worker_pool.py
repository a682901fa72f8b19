"""An executor's Spark Workers: they come, work, are replaced, and go with it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from tests.integration.executing import stage
from tests.integration.spark_cluster import application, cluster_tables, kill, master
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.events.worker import WorkerReady, WorkerStarted, WorkerStopped
from penstock.runtime.paths import LOOPBACK

pytestmark = pytest.mark.spark
START = 60.0
COUNT = """
import os, time
assert spark.range(1000).count() == 1000
print("counted", flush=True)
while not os.path.exists({end!r}):
    time.sleep(0.1)
"""


async def test_workers_come_run_an_application_and_go(
    settings: MakeSettings, tmp_path: Path
) -> None:
    tables = cluster_tables(tmp_path)
    with master(tables) as cluster:
        async with stage(settings, **tables) as host:
            host.start()
            await host.command({"etl": 1})
            [ready] = await host.seen(WorkerReady, within=START)
            assert ready.spawn_seconds
            [worker] = cluster.alive()
            assert worker.resources["etl"].addresses == (f"{ready.worker}/0",)

            end = tmp_path / "end"
            code = COUNT.format(end=str(end))
            wanted = {"spark.executor.resource.etl.amount": "1"}
            with application(cluster.settings, code, tmp_path / "app.log", **wanted) as app:
                await eventually(lambda: "counted" in app.last_words(100), 120)
                [running] = cluster.view().activeapps
                [executor] = cluster.master.totals(running.id)
                assert executor.id == "0", "the driver runs no tasks, and Spark times it all along"
                assert executor.ended_tasks
                end.touch()
                await eventually(lambda: app.exit_code is not None, 120)
                assert app.exit_code == 0

            [started] = host.of(WorkerStarted)
            await host.command({"etl": 0})
            [stopped] = await host.seen(WorkerStopped, within=START)
            assert stopped.cause == "scaled-down"
            assert not psutil.pid_exists(started.pid)
            assert not list((host.run_dir / "spark-workers").iterdir())


async def test_workers_outlive_their_executor_for_the_next_one_and_end_where_none_comes(
    settings: MakeSettings, tmp_path: Path
) -> None:
    tables = {**cluster_tables(tmp_path), "host": {"orphan_grace_seconds": 8, "drain_seconds": 5}}
    with master(tables) as cluster:
        async with stage(settings, **tables) as host:
            executor = host.start()
            await host.command({"etl": 1})
            [first] = await host.seen(WorkerReady, within=START)
            kill(first.pid)
            [stopped] = await host.seen(WorkerStopped)
            assert stopped.cause == "killed"
            _, second = await host.seen(WorkerReady, 2, within=START)
            assert second.pid != first.pid

            os.kill(executor.pid, signal.SIGKILL)
            next_executor = host.start()
            _, _, adopted = await host.seen(WorkerReady, 3, within=START)
            assert (adopted.worker, adopted.pid) == (second.worker, second.pid)
            await host.pool("etl", started=1, ready=1)
            assert len(cluster.alive()) == 1

            os.kill(next_executor.pid, signal.SIGKILL)
            await eventually(lambda: not _runs(second.pid), within=30)
            await eventually(lambda: not cluster.alive(), within=10)


async def test_a_master_that_is_killed_and_started_again_finds_its_workers(
    settings: MakeSettings, tmp_path: Path
) -> None:
    tables = cluster_tables(tmp_path)
    with master(tables) as cluster:
        async with stage(settings, **tables) as host:
            host.start()
            await host.command({"etl": 1})
            await host.seen(WorkerReady, within=START)
            [before] = cluster.alive()
            cluster.restart()
            await eventually(lambda: [w.id for w in cluster.alive()] == [before.id], 90)
            assert not host.of(WorkerStopped)


async def test_master_and_workers_listen_only_where_they_are_told_and_to_whom_they_know(
    settings: MakeSettings, tmp_path: Path
) -> None:
    tables = cluster_tables(tmp_path)
    with master(tables) as cluster:
        async with stage(settings, **tables) as host:
            host.start()
            await host.command({"etl": 1})
            [ready] = await host.seen(WorkerReady, within=START)
            for pid in (cluster.process.pid, ready.pid):
                sockets = psutil.Process(pid).net_connections("tcp")
                heard = {s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN}
                assert {ip.removeprefix("::ffff:") for ip in heard} == {LOOPBACK}
                assert not {s.laddr.port for s in sockets} & {6066}  # REST submission

            stranger = {"spark.authenticate.secret": "another, as long as the first"}
            with application(cluster.settings, "", tmp_path / "app.log", **stranger) as app:
                await eventually(lambda: "SaslException" in app.last_words(200), 60)
            assert not cluster.view().activeapps


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
