"""A program with a streaming query that reports its progress, and the reports that come."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.stream_report import StreamReport
from penstock.events.subjects import Subjects
from penstock.runtime import children
from penstock.runtime.paths import LOOPBACK
from penstock.spark.java import find_java

CLASSIC = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""
CONNECT = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
"""
PROGRAM = """
import pathlib, sys, time
{session}
from penstock.spark.stream_reporter import report_progress
report_progress(spark)

rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
def start(name, frame):
    writer = frame.writeStream.format("noop").trigger(processingTime="500 milliseconds")
    return writer.queryName(name).start()
query, broken = start("orders", rows), start(
    "broken", rows.selectExpr("assert_true(value < 60, 'no secret of mine')")
)
nameless = rows.writeStream.format("noop").start()
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
query.stop()
nameless.stop()
spark.stop()
"""


def environment(settings: Settings, folder: Path) -> dict[str, str]:
    """Of a program with a session and these settings."""
    return {
        "PENSTOCK_NATS__URL": settings.nats.url,
        "PENSTOCK_NATS__NKEY_FILE": settings.nats.nkey_file,
        "PENSTOCK_NATS__CA_FILE": settings.nats.ca_file,
        "PENSTOCK_PREFIX": settings.prefix,
        "JAVA_HOME": str(find_java().home_for_launchers(folder)),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOOPBACK,
        "TMPDIR": str(folder),
    }


class Program:
    """Attributes: process; end: the file that ends it."""

    def __init__(self, process: children.Child, end: Path) -> None:
        self.process, self.end = process, end


@contextmanager
def program(settings: Settings, folder: Path, session: str = CLASSIC) -> Iterator[Program]:
    """Runs it, with a session made so, until the block ends."""
    script, end = folder / "program.py", folder / "end"
    script.write_text(PROGRAM.format(session=session))
    process = children.start(
        [sys.executable, str(script), str(end)],
        name="program",
        log=folder / "program.log",
        env=environment(settings, folder),
    )
    try:
        yield Program(process, end)
    except BaseException:
        print(process.last_words(100))  # noqa: T201
        raise
    finally:
        process.end()


class Reports:
    """The reports that came, by query."""

    def __init__(self) -> None:
        self.by_query: dict[str, list[StreamReport]] = {}

    async def listen(self, bus: Bus, prefix: str) -> None:
        await bus.listen(Subjects(prefix).stream_report("*"), self._take)

    def _take(self, _: str, body: bytes) -> None:
        report = msgspec.json.decode(body, type=StreamReport)
        self.by_query.setdefault(report.query, []).append(report)

    def last(self, query: str) -> StreamReport | None:
        return self.by_query.get(query, [None])[-1]  # type: ignore[list-item]
