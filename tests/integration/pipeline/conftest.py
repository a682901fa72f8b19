"""One Spark session for all tests of the pipeline, and streams for them to read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from tests.integration.pipeline.landing import QUICK_JAVA, Tap, tap

from penstock.cli.main import cli
from penstock.pipeline import app
from penstock.pipeline.session import spark_session
from penstock.pipeline.source import register


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    """A local session of the pipeline's, which knows the format ``nats``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        with spark_session("local[2]") as spark:
            register(spark)
            yield spark


@pytest.fixture
def water(nats_url: str) -> Iterator[Tap]:
    with tap(nats_url) as opened:
        yield opened


@pytest.fixture
def penstock(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Runs a command in ``tmp_path``, on the session that is there; returns what it prints."""
    monkeypatch.setattr(app, "spark_session", lambda _: nullcontext(spark))
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> str:
        ran = CliRunner().invoke(cli, arguments)
        assert ran.exit_code == 0, ran.output
        return ran.stdout

    return call
