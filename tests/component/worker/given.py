"""A worker in this process on the bus in memory, and jobs that it can be given."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.waiting import eventually

from penstock.bus.protocol import Delivery, QueueDepth
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import Event
from penstock.jobs import Client
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State
from penstock.jobs.queues import queue_messages
from penstock.testing.memory.bus import MemoryBus
from penstock.worker.app import without_executor
from penstock.worker.loop import Worker
from penstock.worker.parts import assemble

QUEUE = "reports"
WITHIN = 10.0
"""Seconds; far more than anything here takes."""


def settings(queues: tuple[str, ...] = (QUEUE,), tries: int = 1, **jobs: Any) -> Settings:
    pool = {"kind": "group", "queues": list(queues)} if len(queues) > 1 else {}
    known = {
        "claim_seconds": 1,
        "cancel_grace_seconds": 0.1,
        "unknown_after_seconds": 0,
        **jobs,
    }
    return check(
        {
            "prefix": "p",
            "host": {"name": "h"},
            "jobs": known,
            "pools": {QUEUE: pool | {"tries": tries}},
        }
    )


class Gate:
    """Holds jobs in their thread until it opens; knows who came."""

    def __init__(self) -> None:
        self.came: list[str] = []
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def pass_through(self, name: str = "") -> None:
        self.came.append(name)
        assert self._open.wait(WITHIN), "nobody opened the gate"


class Stage:
    """One broker in memory; workers and a client on it."""

    def __init__(self, settings: Settings, bus: MemoryBus | None = None) -> None:
        self.settings = settings
        self.bus = bus or MemoryBus(settings=settings)
        self.subjects = self.bus.subjects
        self.client = Client(self.bus, prefix=settings.prefix)

    @asynccontextmanager
    async def worker(
        self, bus: MemoryBus | None = None, exit_code: int = 0
    ) -> AsyncIterator[Worker]:
        """A worker that ends with the block, by itself and as it should."""
        worker = Worker(assemble(bus or self.bus.client(), without_executor(self.settings, QUEUE)))
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop("the test is over")
            await asyncio.wait_for(running, WITHIN)
            assert worker.exit_code == exit_code

    async def ended(self, job_id: str) -> JobView:
        return await self.client.wait(job_id, WITHIN)

    async def started(self, job_id: str) -> None:
        await self.reached(job_id, State.RUNNING)

    async def reached(self, job_id: str, state: State) -> JobView:
        async def there() -> JobView | None:
            view = await self.client.job(job_id)
            return view if view.state is state else None

        return await eventually(there, WITHIN, f"job {state}")

    async def story(self, job_id: str) -> list[str]:
        view = await self.client.job(job_id)
        return [event.name if isinstance(event, Event) else "?" for _, event in view.events]

    async def depth(self, name: str = QUEUE) -> QueueDepth:
        await self.bus.ensure_queue(name)
        return (await self.bus.depths())[name]

    async def emptied(self, name: str = QUEUE) -> None:
        async def empty() -> bool:
            depth = await self.depth(name)
            return depth.waiting == depth.claimed == 0

        await eventually(empty, WITHIN, "an empty queue")

    async def messages(self, name: str = QUEUE) -> list[Delivery]:
        return await self.bus.puller(name).fetch(1000, 0)

    async def again(self, job_id: str, times: int = 1) -> None:
        """The job's first queue message, once more."""
        record = (await self.client.job(job_id)).record
        first = (await self.client.job(job_id)).events[0][0]
        headers = queue_messages.headers(job_id, first, 1, {})
        for _ in range(times):
            await self.bus.append(
                queue_messages.Outgoing(self.subjects.queue(record.queue), record.payload, headers)
            )


def once(condition: Callable[[], Any], what: str = "") -> Any:
    return eventually(condition, WITHIN, what)
