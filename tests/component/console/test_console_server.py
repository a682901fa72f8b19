"""The console's server: its address is logged once it takes connections."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from typing import Any, cast

import pytest

from penstock.config import ConfigError
from penstock.config.console import Console as ConsoleSettings
from penstock.config.load import check
from penstock.console.web import binding
from penstock.console.web.gate import Gate
from penstock.console.web.server import listening_socket, serve
from penstock.runtime.service import Service


class Stand:
    """As much of a service as serving needs."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    def spawn(self, work: Any, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=name)


class Knocking(logging.Handler):
    """Connects to each address that is logged, at that moment.

    Attributes:
        answers: whether something listened there.
    """

    def __init__(self, logged: asyncio.Event) -> None:
        super().__init__()
        self._logged, self.answers = logged, list[bool]()

    def emit(self, record: logging.LogRecord) -> None:
        found = re.search(r"console: http://127\.0\.0\.1:(\d+)", record.getMessage())
        if found is None:
            return
        with socket.socket() as knocking:
            self.answers.append(knocking.connect_ex(("127.0.0.1", int(found[1]))) == 0)
        self._logged.set()


async def test_the_address_is_logged_once_connections_are_taken() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    settings = ConsoleSettings(address="127.0.0.1", port=0)
    service, logged = Stand(), asyncio.Event()
    knocking, log = Knocking(logged), logging.getLogger("penstock.console")
    level = log.level
    log.addHandler(knocking)
    log.setLevel(logging.INFO)
    bound = listening_socket(settings)
    try:
        serving = serve(cast(Service, service), cast(Gate, app), settings, bound)
        running = asyncio.create_task(serving)
        await asyncio.wait_for(logged.wait(), 10)
        service.stopping.set()
        await running
    finally:
        log.removeHandler(knocking)
        log.setLevel(level)
        bound.close()
    assert knocking.answers == [True]


def test_new_settings_with_a_port_that_is_taken_are_refused_before_anything_ends() -> None:
    held = binding.Held()
    with socket.create_server(("127.0.0.1", 0)) as own, socket.create_server(("127.0.0.1", 0)) as x:
        own_port, taken = own.getsockname()[1], x.getsockname()[1]
        held.take(ConsoleSettings(port=own_port))
        held.check(check({"console": {"port": own_port, "alert_networks": ["10.0.0.0/8"]}}))
        with pytest.raises(ConfigError, match=f"cannot listen at 127.0.0.1:{taken}"):
            held.check(check({"console": {"port": taken}}))
    held.check(check({"console": {"port": taken}}))
