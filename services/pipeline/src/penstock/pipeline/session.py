"""A Spark session of the pipeline's own."""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.runtime.paths import LOOPBACK
from penstock.spark.class_archive import session_archive
from penstock.spark.java import find_java

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",  # days are UTC days
    "spark.sql.shuffle.partitions": "2",
    # a file for each event at once instead of sorting every batch by event (a third of the time)
    "spark.sql.maxConcurrentOutputFileWriters": "100",
    # a Python process imports for long where others keep the cores busy; 15 s were too few
    "spark.python.authenticate.socketTimeout": "30s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
ALONE = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.authenticate": "true",
}
"""With a local master no other process needs to reach the driver, and none can: Spark makes up a
secret of its own. Without one every user of the machine could send the driver Java objects."""
_CONNECT = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE")
"""Variables that a job worker sets for its own sessions; a pipeline job inherits them."""
_COLLECTOR = "-XX:+UseParallelGC"
"""Batches are about throughput: a sixth less CPU an event than with Java's default."""
_NAMED_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_LOGGING = """
rootLogger.level = error
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""
"""Errors only, from the first line on: commands print tables where Spark would print its banner.
The gateway's own level is what Spark would else raise the root's to, with two lines about it."""
_JAVA_ENDS_SECONDS = 60.0
_GROUPS_A_CORE = 4


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """A session, ended with the block, and its Java with it.

    Raises:
        JavaMissing: no Java that Spark can use.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in _CONNECT:
            os.environ.pop(name, None)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else whatever python3 is on PATH
        os.environ["JAVA_HOME"] = str(find_java().home_for_launchers(Path(folder)))
        if master.startswith(
            "local"
        ):  # else Spark looks for an address, and warns of what it finds
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
        logging.getLogger("py4j").setLevel(logging.WARNING)  # a line for each closed connection
        builder = SparkSession.builder.master(master).appName("penstock-pipeline")
        for name, value in _settings(master, Path(folder)).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()
            _end_java()


def evenly(frame: DataFrame, *columns: str) -> DataFrame:
    """Groups of ``columns`` spread over all cores there are, several a core as groups differ."""
    cores = frame.sparkSession.sparkContext.defaultParallelism
    return frame.repartition(_GROUPS_A_CORE * cores, *columns)


def java_flags() -> list[str]:
    """For the session's Java: a class archive where there is one, and a collector.

    None of the latter where the environment names one: with two, Java does not start.
    """
    options = " ".join(
        os.environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    )
    collector = [] if _NAMED_COLLECTOR.search(options) else [_COLLECTOR]
    return [*session_archive().flags, *collector]


def _settings(master: str, folder: Path) -> dict[str, str]:
    alone = ALONE if master.startswith("local") else {}
    file = folder / "log4j2.properties"
    file.write_text(_LOGGING, "utf-8")
    flags = [*java_flags(), f"-Dlog4j2.configurationFile={file}"]
    return {**SETTINGS, **alone, "spark.driver.extraJavaOptions": " ".join(flags)}


def _end_java() -> None:
    """PySpark keeps its Java for the next session, as long as this process lives."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(_JAVA_ENDS_SECONDS)
