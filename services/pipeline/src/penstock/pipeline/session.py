"""A Spark session of the pipeline's own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.runtime.java import find_java

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",  # days are UTC days
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
}


@contextmanager
def spark_session(master: str) -> Iterator[SparkSession]:
    """A session, ended with the block.

    Raises:
        JavaMissing: no Java that Spark can use.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else whatever python3 is on PATH
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        os.environ["JAVA_HOME"] = str(find_java().home_for_launchers(Path(folder)))
        builder = SparkSession.builder.master(master).appName("penstock-pipeline")
        for name, value in SETTINGS.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        try:
            yield spark
        finally:
            spark.stop()
