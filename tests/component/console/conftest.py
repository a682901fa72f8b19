"""A console over the bus in memory, and a client that speaks HTTP to it within the process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.waiting import eventually

from penstock.bus.protocol import Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.console.app import application, assemble
from penstock.console.parts import Console
from penstock.console.web.credentials import Authenticator, Local
from penstock.console.web.gate import Gate
from penstock.events.envelope import Event, encode
from penstock.events.subjects import Subjects
from penstock.runtime.service import Service
from penstock.testing.memory.bus import MemoryBus

HOST = "http://127.0.0.1:9470"


class Site:
    """A console that runs, and what tests do with it."""

    def __init__(self, bus: MemoryBus, settings: Settings, folder: Path) -> None:
        self.bus, self.settings = bus, settings
        self.subjects = Subjects(settings.prefix)
        self.console: Console = assemble(bus, settings, folder)
        self._service = Service("console", settings, bus)
        self.client = self.caller(Local())

    def caller(self, authenticator: Authenticator) -> httpx.AsyncClient:
        """A client of a console that lets these callers in."""
        app = Gate(application(self.console, authenticator), self.settings.console)
        return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url=HOST)

    def start(self) -> None:
        parts = (self.console.projection, self.console.present, self.console.hub)
        for run in (*(part.run for part in parts), self.console.control.directory.run):
            self._service.spawn(run(self._service), "part")

    def spawn(self, run: Callable[[Service], Coroutine[Any, Any, None]]) -> None:
        """Runs a further part of the console."""
        self._service.spawn(run(self._service), "part")

    async def end_tasks(self) -> None:
        self._service.stopping.set()
        await self._service.end_tasks()

    async def stop(self) -> None:
        await self.end_tasks()
        self.console.close()

    async def store(self, *events: Event) -> int:
        """Appends to the event log, and waits until the console has folded it."""
        sequence = 0
        for event in events:
            sequence = await self.bus.append(Outgoing(self.subjects.event(event), encode(event)))
        assert await self.console.projection.reached(sequence, 10)
        return sequence

    async def publish(self, subject: str, event: Event) -> None:
        """Stores a snapshot, and waits until the console shows it."""
        version = self.console.present.version
        await self.bus.append(Outgoing(subject, encode(event)))
        await eventually(lambda: self.console.present.version > version, 10, "the snapshot")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return check(
        {
            "pools": {"reports": {"sla_seconds": 30}, "imports": {"sla_seconds": 5}},
            "host": {"run_dir": str(tmp_path / "run")},
        }
    )


@pytest.fixture
async def site(settings: Settings, tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(MemoryBus(), settings, tmp_path / "console")
    site.start()
    yield site
    await site.stop()


@pytest.fixture
async def running(site: Site) -> AsyncIterator[Site]:
    """With the part that carries bulk actions out."""
    site.spawn(site.console.bulk.run)
    yield site
