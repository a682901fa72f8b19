"""A Spark Master of a test's own, and applications on its cluster."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from penstock.config import Settings
from penstock.config.load import check
from penstock.runtime import children
from penstock.runtime.paths import LOOPBACK, free_port, temporary_dir
from penstock.spark.java import find_java
from penstock.spark.master import Master, MasterAway, View, Worker, address, ui_url

SECRET = "a secret of sixteen and more"
POOL = {"kind": "spark", "slots": 1, "slot_memory_bytes": 1 << 30, "cpu_cores": 0.1}


def cluster_tables(folder: Path, **pool: Any) -> dict[str, Any]:
    """Settings of a local cluster on free ports with one pool, ``etl``."""
    secret = folder / "secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    ports = {"port": free_port(), "ui_port": free_port()}
    cluster = {"master": "local", "secret_file": str(secret), **ports}
    return {"cluster": cluster, "pools": {"etl": {**POOL, **pool}}}


class Running:
    """Attributes: process: the Master's; settings: of the cluster."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self._folder = settings, folder
        self.master = Master(ui_url(settings.cluster))
        self.process = self._start()

    def restart(self) -> None:
        """The Master is killed; another one goes on where it ended."""
        self.process.signal(signal.SIGKILL)
        self.process.end()
        self.process = self._start()

    def _start(self) -> children.Child:
        cluster = self.settings.cluster
        return children.start(
            [
                *(sys.executable, "-m", "penstock.executor.spark.master"),
                *("--folder", str(self._folder / "master")),
                *("--secret-file", cluster.secret_file),
                *("--port", str(cluster.port), "--ui-port", str(cluster.ui_port)),
            ],
            name="master",
            log=self._folder / "master.log",
        )

    def view(self) -> View:
        try:
            return self.master.view()
        except MasterAway:
            return View(status="AWAY")

    def alive(self) -> list[Worker]:
        return [worker for worker in self.view().workers if worker.state == "ALIVE"]


@contextmanager
def master(tables: dict[str, Any]) -> Iterator[Running]:
    """Runs a Master until the block ends."""
    with temporary_dir() as folder:
        running = Running(check(tables), folder)
        try:
            up = lambda: running.view().status == "ALIVE"  # noqa: E731
            children.wait_until(running.process, up, 60, "up")
            yield running
        finally:
            running.process.end()


@contextmanager
def application(
    settings: Settings, code: str, log: Path, cwd: Path | None = None, **conf: str
) -> Iterator[children.Child]:
    """Runs Python code as an application, ``spark`` being its session, until the block ends."""
    told = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SECRET,
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.port": "0",
        "spark.executor.cores": "1",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        **conf,
    }
    script = log.with_suffix(".py")
    script.write_text(
        "from pyspark.sql import SparkSession\n"
        f"builder = SparkSession.builder.master({address(settings.cluster)!r})\n"
        f"for name, value in {told!r}.items(): builder = builder.config(name, value)\n"
        "spark = builder.getOrCreate()\n" + code
    )
    env = {
        "JAVA_HOME": str(find_java().home_for_launchers(log.parent)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "TMPDIR": str(log.parent),
    }
    app = children.start([sys.executable, str(script)], name="app", cwd=cwd, log=log, env=env)
    try:
        yield app
    except BaseException:
        print(app.last_words(100))  # noqa: T201
        raise
    finally:
        app.end()


def below(pid: int) -> list[psutil.Process]:
    """Spark executors below a Worker."""
    try:
        return list(psutil.Process(pid).children())
    except psutil.NoSuchProcess:
        return []


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
