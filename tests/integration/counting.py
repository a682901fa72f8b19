"""One broker, a client, and on demand a worker and orchestrators in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus
from penstock.events.batch import Counts
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.batches.batch_record import BatchRecord
from penstock.jobs.errors import NotFound
from penstock.jobs.lifecycle import State
from penstock.orchestrator.app import Orchestrator
from penstock.runtime.service import Service
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

QUEUE = "counted"
WITHIN = 15.0


class Stage:
    """A client, and on demand a worker and orchestrators on the same broker."""

    def __init__(self, kind: str, make: MakeSettings) -> None:
        self.settings = make(
            jobs={"claim_seconds": 2}, pools={QUEUE: {"tries": 1}}, nats={"user": ""}
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
        self.client = Client(self.bus, prefix=self.settings.prefix)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._open.aclose()

    async def at_work(self) -> None:
        """A worker and an orchestrator until the test ends."""
        await self._open.enter_async_context(self.worker())
        await self._open.enter_async_context(self.orchestrator())

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        bus = await self.connect()
        await bus.ensure_queue(QUEUE)
        worker = Worker(assemble(bus, without_executor(self.settings, QUEUE)))
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop("the test is over")
            await asyncio.wait_for(running, WITHIN)
            await asyncio.wait_for(bus.close(), WITHIN)

    @asynccontextmanager
    async def orchestrator(self) -> AsyncIterator[Orchestrator]:
        bus = await self.connect()
        service = Service("orchestrator", self.settings, bus)
        found = Orchestrator(service)
        running = asyncio.create_task(found.run())
        try:
            yield found
        finally:
            service.stopping.set()
            await asyncio.wait_for(running, WITHIN)
            await asyncio.wait_for(service.end_tasks(), WITHIN)
            await asyncio.wait_for(bus.close(), WITHIN)
            assert service.failure is None

    async def ended(self, batch_id: str) -> BatchRecord:
        record = await self.client.batches.wait(batch_id, WITHIN)
        how = list((await self.client.batches.ended(batch_id)).values())
        recount = Counts(
            completed=how.count("completed"),
            failed=how.count("failed"),
            cancelled=how.count("cancelled"),
        )
        assert record.counts == recount
        return record

    async def result(self, job_id: str) -> Any:
        async def there() -> bool:
            try:
                return (await self.client.job(job_id)).state.ended
            except NotFound:
                return False

        await eventually(there, WITHIN, f"end of {job_id}")
        view = await self.client.job(job_id)
        assert view.state is State.COMPLETED, view.error
        return view.result

    async def exists(self, job_id: str) -> bool:
        return (
            await self.bus.last(self.subjects.events_stream, self.subjects.job(job_id)) is not None
        )
