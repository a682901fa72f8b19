"""The stack as seen through its broker: load is put on it, and it is asked how it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from msgspec.structs import replace
from tests.compose.compose_jobs import nap
from tests.compose.stack import Stack
from tests.histories import Entry, check, read_all
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusError
from penstock.events.envelope import Event
from penstock.events.job import JobStarted
from penstock.events.scaling import SCALING_EVENTS, LeaderChanged, WorkersScaled
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects
from penstock.jobs import Call, Client
from penstock.runtime.tasks import within

T = TypeVar("T")

LOAD_PER_SECOND = 6.0
_FRESH = timedelta(seconds=3)
_PROCESS_SECONDS = 0.3
"""Between looks that start a process each."""


class Watched:
    """Attributes: acknowledged: jobs whose dispatch the broker confirmed."""

    def __init__(self, stack: Stack, bus: NatsBus, client: Client) -> None:
        self.stack, self.bus, self.client = stack, bus, client
        self.subjects = Subjects("penstock")
        self.acknowledged: list[str] = []

    async def dispatch(self, call: Call) -> str:
        """Its id, once the broker confirmed; waits while that is away."""
        job_id = await self.client.dispatch(call)
        self.acknowledged.append(job_id)
        return job_id

    @asynccontextmanager
    async def load(self) -> AsyncIterator[None]:
        """Short jobs, one after the other, while the block runs."""
        enough = asyncio.Event()
        task = asyncio.create_task(self._offer(enough))
        try:
            yield
        finally:
            enough.set()
            await task

    async def _offer(self, enough: asyncio.Event) -> None:
        while not await within(1 / LOAD_PER_SECOND, enough.wait()):
            await self.dispatch(nap(seconds=0.2))

    # --- how it does -----------------------------------------------------------------------------
    async def hosts(self) -> dict[str, HostSnapshot]:
        """Those that spoke lately."""
        every = self.subjects.host_snapshot("*")
        stored = await self.bus.history(self.subjects.snapshots_stream, every, limit=10_000)
        found = {}
        for each in stored:
            snapshot = SNAPSHOTS.decode(each.body)
            if isinstance(snapshot, HostSnapshot) and datetime.now(UTC) - each.at < _FRESH:
                found[snapshot.host] = snapshot
        return found

    async def ready(self, pool: str, without: str = "") -> int:
        """Workers of a pool, those of one host left out."""
        hosts = await self.hosts()
        pools = [each.pools.get(pool) for name, each in hosts.items() if name != without]
        return sum(workers.ready for workers in pools if workers)

    async def started(self, job_id: str) -> list[JobStarted]:
        found = await self.client.job(job_id)
        return [event for _, event in found.events if isinstance(event, JobStarted)]

    async def leaders(self) -> list[LeaderChanged]:
        return await self._told(LeaderChanged, "decider")

    async def commands(self) -> list[WorkersScaled]:
        return await self._told(WorkersScaled, "host")

    async def _told(self, kind: type[T], noun: str) -> list[T]:
        pattern = self.subjects.events(noun, "*", kind.__name__)
        stored = await self.bus.history(self.subjects.events_stream, pattern, limit=10_000)
        events = [SCALING_EVENTS.decode(each.body) for each in stored]
        return [event for event in events if isinstance(event, kind)]

    async def whole(self, hosts: int = 3, workers: int = 6) -> None:
        """Waits until so many hosts have so many workers of the pool `work`."""

        async def good() -> bool:
            return len(await self.hosts()) >= hosts and await self.ready("work") >= workers

        await self.soon(good, 60, f"{hosts} hosts with {workers} workers")

    async def healthy(self, container: str) -> None:
        """Waits until its own check passes."""

        async def good() -> bool:
            await asyncio.sleep(_PROCESS_SECONDS)
            return await asyncio.to_thread(self.stack.healthy, container)

        await eventually(good, 120, f"{container} healthy")

    async def soon(
        self, condition: Callable[[], Awaitable[T | None]], within: float, what: str
    ) -> T:
        """What ``condition`` gives once it is true; the broker may be away meanwhile."""

        async def asked() -> T | None:
            with suppress(BusError):
                return await condition()
            return None

        found: T | None = await eventually(asked, within, what)
        assert found is not None
        return found

    # --- the verdict -----------------------------------------------------------------------------
    async def all_ended(self, within: float = 90) -> dict[str, list[Entry]]:
        """Every acknowledged job's story, once each has exactly one end."""
        async with asyncio.timeout(within):
            for job_id in self.acknowledged:
                await self.client.wait(job_id, within)
        histories = await read_all(self.bus, self.subjects)
        check(histories, self.acknowledged)
        return histories

    async def pickups(self, queue: str) -> list[float]:
        """Seconds until each acknowledged job of a queue was first started, in order."""
        histories = await self.all_ended()
        firsts = [_first_start(histories[job_id]) for job_id in self.acknowledged]
        return sorted(each.pickup_seconds for each in firsts if each.queue == queue)


def _first_start(story: list[Entry]) -> JobStarted:
    return next(event for _, event in story if isinstance(event, JobStarted))


def seconds_after(moment: datetime, event: Event) -> float:
    return (event.at - moment).total_seconds()


@asynccontextmanager
async def watched(stack: Stack) -> AsyncIterator[Watched]:
    """As the operator, who may look at everything and dispatch; waits while the broker is away."""
    settings = stack.settings("operator")
    settings = replace(settings, dispatch=replace(settings.dispatch, when_away="wait"))
    bus = await connect(settings, "compose-test")
    try:
        async with Client.connect(settings) as client:
            yield Watched(stack, bus, client)
    finally:
        await bus.close()
