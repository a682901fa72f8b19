"""An installation in the test's own process, over either bus: connections, services, a worker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.orchestrator.app import Orchestrator
from penstock.runtime.service import Service
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

STOP_SECONDS = 30.0


class Connector:
    """Connects to one broker, which lives as long as the connector where it is in memory.

    Args:
        kind: ``memory`` or ``nats``.
        settings: which broker, and the prefix.
    """

    def __init__(self, kind: str, settings: Settings) -> None:
        self._settings = settings
        self._memory = MemoryBus(settings=settings) if kind == "memory" else None

    async def connect(self) -> Bus:
        """A new connection, to be closed by the caller."""
        return self._memory.client() if self._memory else await connect(self._settings)


class RunningService:
    """A service as a task of the test.

    Args:
        name: its role.
        bus: its own connection, closed when it stops.
        body: what it runs.
    """

    def __init__(
        self, name: str, settings: Settings, bus: Bus, body: Callable[[Service], Awaitable[None]]
    ) -> None:
        self.service = Service(name, settings, bus)
        self.task = asyncio.ensure_future(body(self.service))

    async def stop(self) -> None:
        """Stops it in order.

        Raises:
            AssertionError: one of its tasks failed.
        """
        self.service.stopping.set()
        await asyncio.wait_for(self.task, STOP_SECONDS)
        await self._close()
        assert self.service.failure is None

    async def kill(self) -> None:
        """As a killed process would: nothing of it runs any more, it lets go of nothing."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._close()

    async def _close(self) -> None:
        await asyncio.wait_for(self.service.end_tasks(), STOP_SECONDS)
        await asyncio.wait_for(self.service.bus.close(), STOP_SECONDS)


class Installation:
    """A client, and on demand workers and orchestrators on the same broker.

    Args:
        kind: ``memory`` or ``nats``.
        queue: what a worker serves unless it is given another.
        orchestrating: arguments of each orchestrator.

    Attributes:
        bus: the client's own connection.
    """

    def __init__(self, kind: str, settings: Settings, queue: str, **orchestrating: Any) -> None:
        self.settings, self._queue, self._orchestrating = settings, queue, orchestrating
        self.subjects = Subjects(settings.prefix)
        self.connect = Connector(kind, settings).connect
        self._open = AsyncExitStack()
        self.bus: Bus
        self.client: Client

    async def __aenter__(self) -> Any:
        self.bus = await self.connect()
        self._open.push_async_callback(self.bus.close)
        self.client = Client.over(self.bus, self.settings)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    async def at_work(self) -> None:
        """A worker and an orchestrator until the test ends."""
        await self._open.enter_async_context(self.worker())
        await self._open.enter_async_context(self.orchestrator())

    @asynccontextmanager
    async def worker(self, queue: str = "") -> AsyncIterator[Worker]:
        """A worker until the block ends."""
        bus, queue = await self.connect(), queue or self._queue
        await bus.ensure_queue(queue)
        worker = Worker(assemble(bus, without_executor(self.settings, queue)))
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop("the test is over")
            await asyncio.wait_for(running, STOP_SECONDS)
            await asyncio.wait_for(bus.close(), STOP_SECONDS)

    @asynccontextmanager
    async def orchestrator(self, bus: Bus | None = None) -> AsyncIterator[Orchestrator]:
        """An orchestrator until the block ends, on a connection of its own or on ``bus``."""
        orchestrators: list[Orchestrator] = []

        def body(service: Service) -> Awaitable[None]:
            orchestrators.append(Orchestrator(service, **self._orchestrating))
            return orchestrators[0].run()

        running = RunningService("orchestrator", self.settings, bus or await self.connect(), body)
        try:
            yield orchestrators[0]
        finally:
            await running.stop()
