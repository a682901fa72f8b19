"""What Spark writes beside the tables of commands that use it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from penstock.pipeline.session import spark_session
with spark_session("local[1]") as spark:
    print(len(spark.range(3).toPandas()))
"""
OF_JAVA = "WARNING: Using incubator modules: jdk.incubator.vector"
"""Spark's launcher asks for the module, and Java has no option to start without this line."""


@pytest.mark.spark
def test_spark_prints_neither_banner_nor_warnings() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "3\n"
    assert [line for line in done.stderr.splitlines() if line != OF_JAVA] == []
