"""A log that turns over: traffic of other jobs, and what waits for the history to be shortened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.events.envelope import encode, new_id
from penstock.events.job import JobCompleted, JobDispatched, JobEvent, JobStarted
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.orchestrator.app import Orchestrator
from penstock.runtime.service import Service
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

LIMIT_BYTES = 1_000_000
QUEUE = "turned"
WITHIN = 30.0


class Stage:
    """A client on a broker with a small log, and on demand workers and orchestrators."""

    def __init__(self, kind: str, make: MakeSettings, **tables: Any) -> None:
        self.settings = make(
            **{
                "jobs": {"claim_seconds": 2},
                "pools": {QUEUE: {"tries": 3}, "paused": {}},
                "nats": {"user": ""},
                "streams": {"events_max_bytes": LIMIT_BYTES},
                **tables,
            }
        )
        self.subjects = Subjects(self.settings.prefix)
        self._memory = MemoryBus(settings=self.settings) if kind == "memory" else None
        self._open = AsyncExitStack()
        self.bus: Bus
        self.client: Client

    async def connect(self) -> Bus:
        return self._memory.client() if self._memory else await connect(self.settings)

    async def __aenter__(self) -> Stage:
        self.bus = await self.connect()
        self._open.push_async_callback(self.bus.close)
        self.client = Client.over(self.bus, self.settings)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    @asynccontextmanager
    async def worker(self, queue: str = QUEUE) -> AsyncIterator[Worker]:
        bus = await self.connect()
        await bus.ensure_queue(queue)
        worker = Worker(assemble(bus, without_executor(self.settings, queue)))
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop("the test is over")
            await asyncio.wait_for(running, WITHIN)
            await bus.close()

    @asynccontextmanager
    async def orchestrator(self, bus: Bus | None = None) -> AsyncIterator[Orchestrator]:
        bus = bus or await self.connect()
        service = Service("orchestrator", self.settings, bus)
        orchestrator = Orchestrator(service, after_seconds=0.6)
        running = asyncio.create_task(orchestrator.run())
        try:
            yield orchestrator
        finally:
            service.stopping.set()
            await asyncio.wait_for(running, WITHIN)
            await asyncio.wait_for(service.end_tasks(), WITHIN)
            await bus.close()
            assert service.failure is None

    async def traffic(self, size: int = LIMIT_BYTES // 2) -> None:
        """Events of jobs that were dispatched, started and completed: so many bytes."""
        written = 0
        while written < size:
            messages = [message for _ in range(50) for message in self._whole_job()]
            for answer in await self.bus.append_many(messages):
                if isinstance(answer, BusError):
                    raise answer
            written += sum(len(message.body) + len(message.subject) for message in messages)

    def _whole_job(self) -> list[Outgoing]:
        about: dict[str, Any] = {"job_id": new_id(), "source": "traffic"}
        events: tuple[JobEvent, ...] = (
            JobDispatched(queue="others", function="none", payload=b"x" * 600, **about),
            JobStarted(queue="others", attempt=1, host="h", worker="w", **about),
            JobCompleted(queue="others", attempt=1, run_seconds=0.1, **about),
        )
        return [Outgoing(self.subjects.event(event), encode(event)) for event in events]

    async def first(self) -> int:
        """Sequence of the log's first message."""
        return (await self.bus.extent(self.subjects.events_stream)).first

    async def turn_over(self) -> None:
        """Returns when no message is left that is there now."""
        end = (await self.bus.extent(self.subjects.events_stream)).last

        async def is_gone() -> bool:
            if await self.first() > end:
                return True
            extent = await self.bus.extent(self.subjects.events_stream)
            if extent.bytes < LIMIT_BYTES:
                await self.traffic(LIMIT_BYTES // 4)
            return False

        await eventually(is_gone, WITHIN, "turnover of the log")

    async def dead_letters(self) -> list[str]:
        stored = await self.bus.history(self.subjects.dead_stream, self.subjects.dead("*", "*"))
        return [one.subject for one in stored]
