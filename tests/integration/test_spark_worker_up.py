"""`penstock up` with a pool of Spark Workers: they come for jobs and applications, and go."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.spark_cluster import application
from tests.integration.test_up import Up, running_up

from penstock.config import Settings
from penstock.config.load import check
from penstock.runtime.paths import free_port
from penstock.spark.master import Master, MasterAway, ui_url

pytestmark = pytest.mark.spark

CONFIG = """
[streams]
events_max_bytes = 16_000_000
[jobs]
modules = ["up_jobs"]
[host]
name = "test-host"
drain_seconds = 20
reserve_cpu_cores = 0
reserve_memory_bytes = 0
max_cpu_share = 1
[spark]
remote = "sc://127.0.0.1:1"
[cluster]
master = "local"
port = {port}
ui_port = {ui_port}
[pools.etl]
kind = "spark"
sla_seconds = 2
max_workers = 2
cpu_cores = 0.1
serves = ["nightly"]
[pools.nightly]
sla_seconds = 2
min_workers = 0
max_workers = 1
"""
JOBS = """
import time
from penstock.jobs import job
from penstock.spark.master import Master

@job(queue="nightly", timeout_seconds=60)
def await_worker(url: str) -> int:
    while True:
        view = Master(url).view()
        if any(worker.state == "ALIVE" for worker in view.workers):
            return len(view.activeapps)
        time.sleep(0.1)
"""
APP = """
slow = "reflect('java.lang.Thread', 'sleep', 500L) AS slept"
assert spark.range(0, 24, 1, 24).selectExpr("id", slow).agg({"id": "sum"}).collect()[0][0] == 276
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Settings:
    ports = {"port": free_port(), "ui_port": free_port()}
    (tmp_path / "penstock.toml").write_text(CONFIG.format(**ports))
    (tmp_path / "up_jobs.py").write_text(JOBS)
    return check({"cluster": {"master": "local", **ports}})


@pytest.fixture
def up(tmp_path: Path, cluster: Settings) -> Iterator[Up]:
    with running_up(tmp_path, 30.0) as running:
        yield running


def test_workers_come_for_a_job_and_for_an_application_and_go_after_them(
    up: Up, cluster: Settings, tmp_path: Path
) -> None:
    master = Master(ui_url(cluster.cluster))

    def workers() -> int | None:
        try:
            return sum(worker.state == "ALIVE" for worker in master.view().workers)
        except MasterAway:
            return None

    up.until_ready()
    up.until(lambda: workers() == 0, "a Master without Workers", 60)
    [secret] = tmp_path.glob(".penstock/cluster.secret")
    assert secret.stat().st_mode & 0o777 == 0o600
    url = f"url={ui_url(cluster.cluster)}"
    done = up.shell.json("job", "submit", "up_jobs.await_worker", "-a", url, "--wait")
    assert done["result"] == 0, "the Worker came before any application"
    known = {"spark.authenticate.secret": secret.read_text()}
    with application(cluster, APP, tmp_path / "app.log", **known) as app:
        up.until(lambda: app.exit_code is not None, "run", 240)
        assert app.exit_code == 0
    pools = up.shell.json("pool", "ls")
    assert {pool["kind"] for pool in pools} == {"spark", "queue"}
    up.until(lambda: workers() == 0, "without Workers again", 150)

    up.child.signal(2)
    assert up.has_ended(40) == 0
    assert up.nothing_left()
