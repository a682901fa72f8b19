"""Real Spark for tests that ask for it: a Connect server, started as an executor does it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config import Settings
from penstock.runtime import children
from penstock.runtime.paths import temporary_dir
from penstock.worker.spark.lease import SparkLease, SparkUnavailable

if TYPE_CHECKING:
    from penstock.worker.spark.session import OpenSession

_END_SECONDS = 20.0
_CONNECT_MODE = "SPARK_CONNECT_MODE_ENABLED"


class NotAsked(SparkLease):
    """What jobs get in a test without Spark: an error that says what to do."""

    def _ready(self) -> OpenSession:
        raise SparkUnavailable(
            "this test did not ask for Spark: let it, or your fixture, take the fixture "
            "`penstock_spark`, or set spark.remote in `penstock_settings`"
        )


@contextmanager
def connect_mode() -> Iterator[None]:
    """`pyspark.sql.functions` make columns of Spark Connect meanwhile, as they do in a worker."""
    before = os.environ.get(_CONNECT_MODE)
    os.environ[_CONNECT_MODE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_CONNECT_MODE]
        else:
            os.environ[_CONNECT_MODE] = before


@contextmanager
def spark_supervisor(settings: Settings) -> Iterator[Path]:
    """Starts a Spark supervisor; yields the run folder where jobs find it.

    Needs `penstock-executor`. The server starts with the first job that asks for it.
    """
    from penstock.executor.spark.supervisor import command  # noqa: PLC0415 - only who asks needs it

    with temporary_dir() as run_dir, (run_dir / "executor.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # as the executor holds it while it lives
        argv, variables = command(run_dir, settings)
        child = children.start(
            argv, name="Spark supervisor", log=run_dir / "supervisor.log", env=variables
        )
        try:
            yield run_dir
        finally:
            child.end(_END_SECONDS)
