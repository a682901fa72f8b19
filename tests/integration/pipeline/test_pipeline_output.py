"""What Spark writes beside the tables of commands that use it."""

from __future__ import annotations

import os
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
    # Java names the options of these variables itself, whoever starts it
    environment = {
        name: value for name, value in os.environ.items() if not name.endswith("JAVA_OPTIONS")
    }
    environment.pop("JAVA_TOOL_OPTIONS", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "3\n"
    assert [line for line in done.stderr.splitlines() if line != OF_JAVA] == []
