"""A Spark keeper of a test's own, in a run folder whose executor the test plays."""

from __future__ import annotations

import fcntl
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import psutil

from penstock.config.spark import Spark
from penstock.runtime import children
from penstock.runtime.paths import temporary_dir
from penstock.worker.spark.lease import SparkLease


class SparkHost:
    """Attributes: run_dir; keeper: its process."""

    def __init__(self, run_dir: Path, keeper: children.Child, lock: IO[bytes]) -> None:
        self.run_dir, self.keeper, self._lock = run_dir, keeper, lock

    def lease(self) -> SparkLease:
        return SparkLease(self.run_dir, Spark())

    def executor_ends(self) -> None:
        self._lock.close()

    def server(self) -> psutil.Process | None:
        """The Java process, if one runs."""
        found = [each for each in psutil.Process(self.keeper.pid).children() if each.is_running()]
        return found[0] if found else None

    @property
    def log(self) -> str:
        return self.keeper.last_words(100)


@contextmanager
def spark_host(
    *options: str, conf: str = "{}", java_home: str | None = None
) -> Iterator[SparkHost]:
    """Runs a keeper; at the end it is told to end, and its server must be gone."""
    with temporary_dir() as run_dir, (run_dir / "executor.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = {"SPARK_SUPERVISOR_CONF": conf, "PYTHONUNBUFFERED": "1"}
        keeper = children.start(
            [
                *(
                    sys.executable,
                    "-m",
                    "penstock.executor.spark.supervisor",
                    "--run-dir",
                    str(run_dir),
                ),
                *("--memory", "512m", "--threads", "2", *options),
            ],
            name="keeper",
            log=run_dir / "keeper.log",
            env={**environment, **({"JAVA_HOME": java_home} if java_home else {})},
        )
        host = SparkHost(run_dir, keeper, lock)
        try:
            yield host
            server = host.server() if keeper.exit_code is None else None
            assert keeper.end(20) in (0, -signal.SIGKILL), host.log
            assert server is None or not server.is_running()
        finally:
            keeper.end(5)
