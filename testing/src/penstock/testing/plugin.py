"""The fixtures that pytest finds by itself once `penstock-testing` is installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.testing import Bench, SyncBench


@pytest.fixture
def penstock_settings() -> Settings:
    """The settings that jobs run with; override it to give your own."""
    from penstock.config import Settings  # noqa: PLC0415 - tests without it pay nothing

    return Settings()


@pytest.fixture(scope="session")
def penstock_spark() -> Iterator[str]:
    """Real Spark for the jobs of the tests that take this fixture; one server for all of them."""
    from penstock.config import load  # noqa: PLC0415
    from penstock.testing.spark import spark_supervisor  # noqa: PLC0415

    with spark_supervisor(load()) as run_dir:
        yield str(run_dir)


@contextmanager
def _spark(request: pytest.FixtureRequest) -> Iterator[str]:
    """The run folder where jobs reach Spark, for a test that asked for it; else an empty name."""
    if "penstock_spark" not in request.fixturenames:
        yield ""
        return
    from penstock.testing.spark import connect_mode  # noqa: PLC0415

    with connect_mode():
        yield str(request.getfixturevalue("penstock_spark"))


@pytest.fixture
def penstock(request: pytest.FixtureRequest, penstock_settings: Settings) -> Iterator[Bench]:
    """A broker in memory for an `async` test: `penstock.client`, `await penstock.run_pending()`."""
    from penstock.testing import Bench  # noqa: PLC0415

    with _spark(request) as run_dir:
        yield Bench(penstock_settings, run_dir)


@pytest.fixture
def penstock_sync(
    request: pytest.FixtureRequest, penstock_settings: Settings
) -> Iterator[SyncBench]:
    """The same for a plain test: `penstock_sync.client`, `penstock_sync.run_pending()`."""
    from penstock.testing import SyncBench  # noqa: PLC0415

    with _spark(request) as run_dir, SyncBench(penstock_settings, run_dir) as bench:
        yield bench
