"""A query whose rate triples after a minute and falls again after two.

Files that come are its rows, as they would from a log shipper; each row takes 0.4 s, as a call of
another service would.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from penstock.spark.stream_reporter import report_progress

MASTER = "spark://127.0.0.1:7077"
CALM, BUSY = 1.5, 4.5
"""Rows a second."""
WORK = "reflect('java.lang.Thread', 'sleep', 400L) AS called"


def session() -> SparkSession:
    """A session on the cluster of `penstock up`."""
    conf = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": Path(".penstock/cluster.secret").read_text().strip(),
        "spark.driver.host": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "900m",
        "spark.executor.resource.stream.amount": "1",
        "spark.decommission.enabled": "true",
        "spark.storage.decommission.enabled": "true",
        "spark.storage.decommission.shuffleBlocks.enabled": "true",
        "spark.storage.decommission.rddBlocks.enabled": "true",
        "spark.sql.files.maxPartitionBytes": "1",  # a task for each row
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",  # lists in the driver
    }
    builder = SparkSession.builder.master(MASTER)
    for name, value in conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def feed(folder: Path, ended: threading.Event) -> None:
    """Writes rows, until the program ends."""
    began, due, written = time.monotonic(), 0.0, 0
    while not ended.wait(0.2):
        minutes = (time.monotonic() - began) / 60
        due += 0.2 * (BUSY if 1 <= minutes < 2 else CALM)
        while written < due:
            written += 1
            hidden = folder / ".next"
            hidden.write_text("x")
            hidden.rename(folder / str(written))


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    ended, spark = threading.Event(), session()
    report_progress(spark)
    with TemporaryDirectory() as folder:
        rows = spark.readStream.format("text").load(folder).selectExpr("value", WORK)
        query = (
            rows.writeStream.format("noop")
            .queryName("visits")
            .trigger(processingTime="4 seconds")
            .start()
        )
        feeding = threading.Thread(target=feed, args=(Path(folder), ended))
        feeding.start()
        query.awaitTermination(int(60 * minutes))
        ended.set()
        feeding.join()
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
