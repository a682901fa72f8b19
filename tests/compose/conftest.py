"""One stack for the whole session: three executors, two deciders; taken down at the end."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator
from ipaddress import ip_network

import pytest
from tests.compose import figures
from tests.compose.engine import NoEngine, engine
from tests.compose.stack import Stack, docker
from tests.compose.watched import Watched, watched
from tests.integration.otlp import Collector


@pytest.fixture(scope="session")
def compose(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    if not any("compose" in str(each) for each in request.config.invocation_params.args):
        pytest.skip("builds images and starts containers: run `make compose-test`")
    try:
        with engine(tmp_path_factory.mktemp("engine")) as found:
            yield found
    except NoEngine as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def collector(compose: list[str]) -> Iterator[Collector]:
    """Listens where containers can reach this machine."""
    bridge = json.loads(docker("network", "inspect", "bridge"))[0]["IPAM"]["Config"][0]
    # An engine that has not been restarted since it made the bridge names no gateway.
    first = str(next(ip_network(bridge["Subnet"]).hosts()))
    with Collector(host=bridge.get("Gateway", first)) as collector:
        yield collector


@pytest.fixture(scope="session")
def stack(
    compose: list[str], collector: Collector, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    stack = Stack(compose, tmp_path_factory.mktemp("stack"), collector.endpoint)
    stack.prepare()
    if os.environ.get("COMPOSE_TEST_BUILD", "yes") != "no":  # no: with the images that are there
        stack.compose("build", "--quiet")
    try:
        stack.up()
        yield stack
    finally:
        log = tmp_path_factory.getbasetemp() / "stack.log"
        log.write_text(stack.logs(), "utf-8")
        figures.note(f"what the containers said last: {log}")
        stack.down()


@pytest.fixture
async def site(stack: Stack) -> AsyncIterator[Watched]:
    """The stack, whole, and at the end all jobs must have ended exactly once."""
    async with watched(stack) as site:
        await site.whole()
        yield site
        await site.all_ended()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in figures.NOTED:
        terminalreporter.write_line(line)
