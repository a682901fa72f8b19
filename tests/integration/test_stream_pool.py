"""A streaming query whose rate rises and falls, on Workers that `penstock up` scales for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.spark_cluster import application
from tests.integration.test_up import Up, running_up

from penstock.config import Settings
from penstock.config.load import check
from penstock.runtime.paths import free_port
from penstock.spark.master import Master, MasterAway, ui_url

pytestmark = [pytest.mark.spark, pytest.mark.long]

PATIENCE = 600.0
CALM, BUSY = 0.3, 3.0
"""Files a second, of 0.4 s each. So far apart that one Worker is enough for the calm rate on a busy
machine, too, on which each takes several times as long."""
CONFIG = """
[streams]
events_max_bytes = 16_000_000
[host]
name = "test-host"
drain_seconds = 60
reserve_cpu_cores = 0
reserve_memory_bytes = 0
max_cpu_share = 1
[spark]
remote = "sc://127.0.0.1:1"
[cluster]
master = "local"
port = {port}
ui_port = {ui_port}
[sources.progress]
kind = "spark-stream"
[pools.stream]
kind = "spark"
source = "progress"
queues = ["orders"]
sla_seconds = 60
max_workers = 3
cpu_cores = 0.1
options.batch_within.hold_seconds = 5
"""
APP = """
import json, os, pathlib, sys, threading, time
from urllib.request import urlopen
from penstock.spark.stream_reporter import report_progress

folder = pathlib.Path({folder!r})
report_progress(spark)
arrived, ended = folder / "arrived", threading.Event()
arrived.mkdir()
written = 0

def feed():
    global written
    due = 0.0
    while not ended.wait(0.25):
        due += 0.25 * float((folder / "rate").read_text() or 0)
        while due >= 1:
            due, written = due - 1, written + 1
            hidden = folder / "hidden"
            hidden.write_text("x")  # one byte a file, one file a task
            hidden.rename(arrived / str(written))

spark.conf.set("spark.sql.files.maxPartitionBytes", "1")
spark.conf.set("spark.sql.sources.parallelPartitionDiscovery.threshold", "100000")
nap = "reflect('java.lang.Thread', 'sleep', 400L) AS slept"
rows = spark.readStream.format("text").load(str(arrived)).selectExpr("value", nap)
writer = rows.writeStream.format("noop").queryName("orders").trigger(processingTime="2 seconds")
query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
feeding = threading.Thread(target=feed)
feeding.start()
while not (folder / "end").exists():
    if query.exception():
        raise query.exception()
    time.sleep(0.1)
ended.set()
feeding.join()
query.processAllAvailable()
api = spark.sparkContext.uiWebUrl + "/api/v1/applications/" + spark.sparkContext.applicationId
executors = json.load(urlopen(api + "/allexecutors"))
batches = [json.loads(batch.json) for batch in query.recentProgress]
(folder / "result.json").write_text(json.dumps(dict(
    written=written,
    rows=sum(batch["numInputRows"] for batch in batches),
    failed=sum(executor["failedTasks"] for executor in executors),
)))
query.stop()
spark.stop()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Settings:
    ports = {"port": free_port(), "ui_port": free_port()}
    (tmp_path / "penstock.toml").write_text(CONFIG.format(**ports))
    return check({"cluster": {"master": "local", **ports}})


@pytest.fixture
def up(tmp_path: Path, cluster: Settings) -> Iterator[Up]:
    with running_up(tmp_path, 60.0) as running:
        yield running


def test_workers_come_with_the_rate_and_go_with_it_and_no_task_fails(
    up: Up, cluster: Settings, tmp_path: Path
) -> None:
    master, folder = Master(ui_url(cluster.cluster)), tmp_path / "orders"
    folder.mkdir()

    def workers() -> int | None:
        try:
            return sum(worker.state == "ALIVE" for worker in master.view().workers)
        except MasterAway:
            return None

    def rate(files_per_second: float) -> None:
        hidden = folder / "next-rate"
        hidden.write_text(str(files_per_second))
        hidden.rename(folder / "rate")

    rate(CALM)
    up.until_ready()
    up.until(lambda: workers() == 0, "a Master without Workers", PATIENCE)
    [secret] = tmp_path.glob(".penstock/cluster.secret")
    wanted = {
        "spark.authenticate.secret": secret.read_text(),
        "spark.executor.resource.stream.amount": "1",
    }
    code, log = APP.format(folder=str(folder)), tmp_path / "app.log"
    with application(cluster, code, log, cwd=tmp_path, **wanted) as app:
        up.until(lambda: workers() == 1, "a Worker for a query that runs", PATIENCE)
        up.until(lambda: _batches(up) >= 2, "batches that are done", PATIENCE)
        rate(BUSY)
        up.until(lambda: (workers() or 0) >= 2, "more Workers for more rows", PATIENCE)
        rate(CALM)
        up.until(lambda: workers() == 1, "a single Worker again", PATIENCE)
        (folder / "end").touch()
        up.until(lambda: app.exit_code is not None, "the program's end", PATIENCE)
        assert app.exit_code == 0
    result = json.loads((folder / "result.json").read_text())
    assert (result["rows"], result["failed"]) == (result["written"], 0)
    up.until(lambda: workers() == 0, "no Worker for a query that ended", PATIENCE)


def _batches(up: Up) -> int:
    [pool] = up.shell.json("pool", "ls")
    budget = pool.get("budget") or {}
    return int(budget.get("jobs", 0))
