"""A Spark Master: ``python -m penstock.executor.spark.master --folder DIR …`` becomes its Java."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from penstock.config import ConfigError
from penstock.executor.spark import standalone
from penstock.executor.spark.java import SparkMissing, find_spark
from penstock.executor.spark.standalone import Place
from penstock.runtime.paths import LOOPBACK


def main(arguments: Sequence[str] | None = None) -> int:
    """Does not return, unless the Master cannot be started: then 1, with a sentence on stderr."""
    options = _parser().parse_args(arguments)
    place = Place(options.interface, options.port, options.ui_port)
    try:
        secret, spark = standalone.read_secret(options.secret_file), find_spark()
    except (ConfigError, SparkMissing) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    standalone.write_master(spark, options.folder, place, spark.archive("daemon").flags)
    environment = standalone.environment(spark, options.folder, options.interface, secret)
    command = spark.command(options.folder)
    os.execve(command[0], command, {**os.environ, **environment})  # noqa: S606 - no shell
    raise AssertionError("unreachable")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m penstock.executor.spark.master",
        description="Runs the Master of a Spark standalone cluster.",
    )
    parser.add_argument("--folder", type=Path, required=True, help="for its files; emptied")
    parser.add_argument("--secret-file", required=True, help="the cluster's secret, mode 0600")
    parser.add_argument("--interface", default=LOOPBACK, help="address to listen at")
    parser.add_argument("--port", type=int, default=7077)
    parser.add_argument("--ui-port", type=int, default=8080)
    return parser


if __name__ == "__main__":
    sys.exit(main())
