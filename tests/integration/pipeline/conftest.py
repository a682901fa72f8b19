"""One Spark session for all tests of the pipeline, and streams for them to read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from tests.integration.pipeline.landing import QUICK_JAVA, Tap, tap

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
