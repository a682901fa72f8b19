"""Makes the class archives of this host: ``python -m penstock.executor.spark_training KIND…``.

Each is written by a process that is started, used a little and ended as usual. It takes some ten
seconds of one core, once for each Java and pyspark; nobody waits for it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.executor import spark_daemon, spark_server
from penstock.executor.spark_daemon import Offer, Place
from penstock.executor.spark_java import SparkJava, SparkMissing, find_spark
from penstock.runtime import children
from penstock.runtime.children import Child, ChildFailed
from penstock.runtime.paths import LOOPBACK, free_port, temporary_dir
from penstock.runtime.spark_master import Master, MasterAway

log = logging.getLogger("penstock.executor")

_READY_SECONDS = 90.0
_WRITE_SECONDS = 120.0
"""Writing an archive takes 3 s, and much longer on a busy machine."""
_NICE = 10
_QUERY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({remote!r}).getOrCreate()
spark.range(1000).selectExpr("id % 7 AS k", "id").groupBy("k").sum("id").toPandas()
spark.createDataFrame([(1, "a")], "n int, s string").collect()
"""

_SESSION = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
builder = builder.config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.driver.extraJavaOptions", {flags!r}).getOrCreate()
spark.range(1000).selectExpr("id % 7 AS k", "id").groupBy("k").sum("id").toPandas()
spark.createDataFrame([(1, "a")], "n int, s string").collect()
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait({seconds})
"""

Flags = tuple[str, ...]


def train_daemon(spark: SparkJava, folder: Path, flags: Flags) -> None:
    """A Worker that joins a Master."""
    place = Place(LOOPBACK, free_port(), free_port())
    secret = secrets.token_urlsafe(24)
    spark_daemon.write_master(spark, folder / "master", place, ())
    master = _start(spark, folder / "master", secret)
    try:
        view = Master(f"http://{LOOPBACK}:{place.ui_port}").view
        _await(master, lambda: view().status == "ALIVE")
        offer = Offer("trained", "trained", 1, 1 << 30)
        spark_daemon.write_worker(spark, folder / "worker", LOOPBACK, place.address, offer, flags)
        worker = _start(spark, folder / "worker", secret)
        try:
            _await(worker, lambda: bool(view().workers))
        finally:
            worker.end(_WRITE_SECONDS)
    finally:
        master.end()


def train_connect(_: SparkJava, folder: Path, flags: Flags) -> None:
    """A Connect server that answers a query."""
    asyncio.run(_train_connect(folder, flags))


def train_session(spark: SparkJava, folder: Path, flags: Flags) -> None:
    """A classic session, as PySpark starts it."""
    script = folder / "session.py"
    script.write_text(_SESSION.format(flags=" ".join(flags), seconds=_WRITE_SECONDS), "utf-8")
    home = str(spark.java.home_for_launchers(folder))
    child = children.start([sys.executable, str(script)], name="session", env={"JAVA_HOME": home})
    if child.wait(_READY_SECONDS + _WRITE_SECONDS):
        log.warning("the session that an archive is trained with failed")
    child.end()


KINDS: dict[str, Callable[[SparkJava, Path, Flags], None]] = {
    "daemon": train_daemon,
    "connect": train_connect,
    "session": train_session,
}


async def _train_connect(folder: Path, flags: Flags) -> None:
    server = await spark_server.start(folder, spark_server.Options(threads=1), flags)
    try:
        query = folder / "query.py"  # a file: the address in it holds a token
        query.write_text(_QUERY.format(remote=server.remote), "utf-8")
        client = children.start([sys.executable, str(query)], name="query")
        if await asyncio.wait_for(client.ended(), _READY_SECONDS):
            log.warning("the query that a Connect server is trained with failed")
    finally:
        await server.child.stop(_WRITE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes those that are missing; 1 if one could not be made."""
    parser = argparse.ArgumentParser(prog="python -m penstock.executor.spark_training")
    parser.add_argument("kinds", nargs="+", choices=sorted(KINDS))
    kinds = parser.parse_args(arguments).kinds
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    os.nice(_NICE)
    try:
        spark = find_spark()
    except SparkMissing as error:
        log.info("no class archive is made: %s", error)
        return 1
    made = [_make(spark, kind) for kind in kinds]
    return int(not all(made))


def _make(spark: SparkJava, kind: str) -> bool:
    began = time.monotonic()
    with temporary_dir() as folder:
        try:
            made = spark.archive(kind).build(lambda flags: KINDS[kind](spark, folder, flags))
        except (ChildFailed, spark_server.ServerFailed, TimeoutError, OSError) as error:
            log.warning("no class archive %r is made: %s", kind, error)
            return False
    log.info("class archive %r: %s after %.1f s", kind, made, time.monotonic() - began)
    return made


def _start(spark: SparkJava, folder: Path, secret: str) -> Child:
    return children.start(
        spark.command(folder),
        name=folder.name,
        log=folder / "log",
        env=spark_daemon.environment(spark, folder, LOOPBACK, secret),
    )


def _await(child: Child, told: Callable[[], bool]) -> None:
    def is_told() -> bool:
        try:
            return told()
        except MasterAway:
            return False

    children.wait_until(child, is_told, _READY_SECONDS, "known at the Master")


if __name__ == "__main__":
    sys.exit(main())
