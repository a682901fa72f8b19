"""Makes the class archives of this host: ``python -m penstock.executor.spark.training KIND…``.

Each is written by a process that is started, used a little and ended as usual. It takes some ten
seconds of one core, once for each Java and pyspark; no process waits for it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import secrets
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil

from penstock.executor.spark import connect_server, standalone
from penstock.executor.spark.java import SparkJava, SparkMissing, find_spark
from penstock.executor.spark.standalone import Offer, Place
from penstock.runtime import children
from penstock.runtime.children import Child, ChildFailed
from penstock.runtime.paths import LOOPBACK, free_port, temporary_dir
from penstock.spark.master import Master, MasterAway
from penstock.telemetry import lines

log = logging.getLogger("penstock.executor")

_READY_SECONDS = 90.0
_WRITE_SECONDS = 120.0
"""Writing an archive takes 3 s, and much longer on a busy machine."""
_NICE = 19
_WORK = """
spark.range(1000).selectExpr("id % 7 AS k", "id").groupBy("k").sum("id").toPandas()
spark.createDataFrame([(1, "a")], "n int, s string").collect()
"""
_QUERY = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({remote!r}).getOrCreate()
"""
_SESSION = """
from pyspark.sql import SparkSession
builder = SparkSession.builder.master({address!r})
for name, value in {settings!r}.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
"""
_LOCAL = {
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.authenticate": "true",
}
_END_JAVA = """
gateway = spark.sparkContext._gateway
spark.stop()
gateway.shutdown()
gateway.proc.stdin.close()
gateway.proc.wait()
"""
_STAY = """
import signal
from pathlib import Path
Path({ready!r}).touch()
signal.pause()
"""

Flags = tuple[str, ...]
_FAILURES = (ChildFailed, connect_server.ServerFailed, TimeoutError, OSError, psutil.Error)


def train_daemon(spark: SparkJava, folder: Path, flags: Flags) -> None:
    """A Worker that joins a Master."""
    with _cluster(spark, folder, secrets.token_urlsafe(24), flags) as (_, worker):
        worker.end(_WRITE_SECONDS)


def train_executor(spark: SparkJava, folder: Path, flags: Flags) -> None:
    """An executor that runs a query's tasks."""
    secret = secrets.token_urlsafe(24)
    with _cluster(spark, folder, secret) as (address, worker):
        ready = folder / "ready"
        settings = {
            **_LOCAL,
            "spark.authenticate.secret": secret,
            "spark.executor.extraJavaOptions": " ".join(flags),
        }
        session = _SESSION.format(address=address, settings=settings)
        app = _python(spark, folder, session + _WORK + _STAY.format(ready=str(ready)))
        try:
            children.wait_until(app, ready.exists, _READY_SECONDS, "done")
            executors = psutil.Process(worker.pid).children()
            worker.signal(signal.SIGSTOP)  # it would start others, which write the same file
            for process in executors:
                _end(process.pid)
            worker.signal(signal.SIGKILL)
        finally:
            app.end()


def train_connect(_: SparkJava, folder: Path, flags: Flags) -> None:
    """A Connect server that answers a query."""
    asyncio.run(_train_connect(folder, flags))


def train_session(spark: SparkJava, folder: Path, flags: Flags) -> None:
    """A classic session, as PySpark starts it."""
    settings = {**_LOCAL, "spark.driver.extraJavaOptions": " ".join(flags)}
    code = _SESSION.format(address="local[1]", settings=settings) + _WORK + _END_JAVA
    child = _python(spark, folder, code)
    if child.wait(_READY_SECONDS + _WRITE_SECONDS):
        log.warning("the session that an archive is trained with failed")
    child.end()


def _python(spark: SparkJava, folder: Path, code: str) -> Child:
    """Runs a program; a file, since there may be a secret in it."""
    script = folder / "program.py"
    script.write_text(code, "utf-8")
    environment = {
        "JAVA_HOME": str(spark.java.home_for_launchers(folder)),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore",
    }
    return children.start([sys.executable, str(script)], name="program", env=environment)


KINDS: dict[str, Callable[[SparkJava, Path, Flags], None]] = {
    "daemon": train_daemon,
    "connect": train_connect,
    "executor": train_executor,
    "session": train_session,
}


async def _train_connect(folder: Path, flags: Flags) -> None:
    server = await connect_server.start(folder, connect_server.Options(threads=1), flags)
    try:
        script = folder / "query.py"  # a file: the address in it holds a token
        script.write_text(_QUERY.format(remote=server.remote) + _WORK, "utf-8")
        client = children.start([sys.executable, str(script)], name="query")
        if await asyncio.wait_for(client.ended(), _READY_SECONDS):
            log.warning("the query that a Connect server is trained with failed")
    finally:
        await server.child.stop(_WRITE_SECONDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes those that are missing; 1 if one could not be made."""
    parser = argparse.ArgumentParser(prog="python -m penstock.executor.spark.training")
    parser.add_argument("kinds", nargs="+", choices=sorted(KINDS))
    parser.add_argument("--log-json", action="store_true", help="log one JSON object a line")
    options = parser.parse_args(arguments)
    kinds = options.kinds
    lines.start("info", options.log_json)
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
        except _FAILURES as error:
            log.warning("no class archive %r is made: %s", kind, error)
            return False
    outcome = "made" if made else "not made"
    log.info("class archive %r %s in %.1f s", kind, outcome, time.monotonic() - began)
    return made


def _end(pid: int) -> None:
    """TERM, and waits until it ended: its parent is stopped and does not collect it."""
    watched = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(watched, signal.SIGTERM)
        poll = select.poll()
        poll.register(watched, select.POLLIN)
        poll.poll(_WRITE_SECONDS * 1000)
    finally:
        os.close(watched)


@contextmanager
def _cluster(
    spark: SparkJava, folder: Path, secret: str, flags: Flags = ()
) -> Iterator[tuple[str, Child]]:
    """A Master and a Worker with these flags; the Master's address and the Worker."""
    place = Place(LOOPBACK, free_port(), free_port())
    view = Master(f"http://{LOOPBACK}:{place.ui_port}").view
    with ExitStack() as stack:
        standalone.write_master(spark, folder / "master", place, ())
        master = _start(spark, folder / "master", secret)
        stack.callback(master.end)
        _await(master, lambda: view().status == "ALIVE")
        offer = Offer("trained", "trained", 1, 1 << 30)
        standalone.write_worker(spark, folder / "worker", LOOPBACK, place.address, offer, flags)
        worker = _start(spark, folder / "worker", secret)
        stack.callback(worker.end)
        _await(worker, lambda: bool(view().workers))
        yield place.address, worker


def _start(spark: SparkJava, folder: Path, secret: str) -> Child:
    return children.start(
        spark.command(folder),
        name=folder.name,
        log=folder / "log",
        env=standalone.environment(spark, folder, LOOPBACK, secret),
    )


def _await(child: Child, is_listed: Callable[[], bool]) -> None:
    def is_known() -> bool:
        try:
            return is_listed()
        except MasterAway:
            return False

    children.wait_until(child, is_known, _READY_SECONDS, "known at the Master")


if __name__ == "__main__":
    sys.exit(main())
