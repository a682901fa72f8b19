"""The fixtures that pytest finds by itself once `penstock-testing` is installed.

An `async` test that takes the fixture `penstock` is run by this plug-in, unless another one does,
such as pytest-asyncio or anyio: nothing has to be configured.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.config import Settings
    from penstock.testing import Bench, SyncBench


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Keeps pytest-asyncio quiet about a loop scope that tests with these fixtures do not use."""
    option = "asyncio_default_fixture_loop_scope"
    # pytest restores the filters of before once all plug-ins are configured
    warnings.filterwarnings("ignore", rf'The configuration option "{option}" is unset')


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs an `async` test that no other plug-in has made a plain one."""
    test = pyfuncitem.obj
    if "penstock" not in pyfuncitem.fixturenames or not inspect.iscoroutinefunction(test):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(test(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def penstock_settings(request: pytest.FixtureRequest) -> Settings:
    """The settings that jobs run with: those of the project; override it to give your own.

    Read from ``PENSTOCK_CONFIG``, else ``penstock.toml`` in the folder of the tests' configuration,
    else in the working directory; environment variables lie over it, as for every command.
    """
    return _project_settings(request.config)


def _project_settings(config: pytest.Config) -> Settings:
    from penstock.config import load  # noqa: PLC0415 - tests without it pay nothing
    from penstock.config.load import FILE, FILE_VARIABLE  # noqa: PLC0415

    file = config.rootpath / FILE
    is_there = file.is_file() and not os.environ.get(FILE_VARIABLE)
    return load(file if is_there else None)


@pytest.fixture(scope="session")
def penstock_spark(pytestconfig: pytest.Config) -> Iterator[str]:
    """Real Spark for the jobs of the tests that take this fixture; one server for all of them."""
    from penstock.testing.spark import spark_supervisor  # noqa: PLC0415

    with spark_supervisor(_project_settings(pytestconfig)) as run_dir:
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
