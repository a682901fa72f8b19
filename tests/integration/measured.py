"""A metrics service over either bus, what it publishes, and the world around it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

from datasketches import kll_doubles_sketch
from tests.installation import Connector, RunningService
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.config import Settings
from penstock.events.envelope import encode
from penstock.events.snapshot import (
    MEASURED,
    HostSnapshot,
    PoolSnapshot,
    PoolWorkers,
    SourceUnread,
)
from penstock.events.subjects import Subjects
from penstock.events.worker import WorkerReport
from penstock.jobs.queues.queue_messages import JOB
from penstock.metrics.app import body
from penstock.runtime.service import Service

GIB = 1024**3
QUICK = {"interval_seconds": 0.1, "max_per_second": 10}
SELDOM = {"interval_seconds": 30.0, "max_per_second": 10}
ONE_POOL = {"reports": {"min_workers": 0}}


class Stage:
    """A metrics service to be started, what it published, and the world around it."""

    def __init__(self, kind: str, make: MakeSettings) -> None:
        self.kind, self.make = kind, make
        self.subjects = Subjects(make.prefix)
        self.snapshots: list[PoolSnapshot] = []
        self.headers: list[dict[str, str]] = []
        self.settings: Settings
        self.world: Bus
        self._connector: Connector | None = None
        self._running: list[RunningService] = []
        self._collecting: asyncio.Task[None] | None = None
        self._named: dict[str, set[str]] = {}

    async def bus(self) -> Bus:
        self._connector = self._connector or Connector(self.kind, self.settings)
        return await self._connector.connect()

    async def start(
        self, pools: Any = None, metrics: Any = None, wrap: Any = None, **tables: Any
    ) -> Service:
        nats = {"request_timeout_seconds": 0.5}
        self.settings = self.make(
            pools=pools or ONE_POOL,
            metrics=metrics or QUICK,
            nats=nats,
            jobs={"claim_seconds": 1},
            **tables,
        )
        if not self._collecting:
            self.world = await self.bus()
            self._collecting = asyncio.create_task(self._collect())
        bus = await self.bus()
        running = RunningService("metrics", self.settings, wrap(bus) if wrap else bus, body)
        self._running.append(running)
        return running.service

    async def stop(self) -> None:
        while self._running:
            await self._running.pop().stop()

    async def close(self) -> None:
        await self.stop()
        if self._collecting:
            self._collecting.cancel()
            await self.world.close()

    async def _collect(self) -> None:
        stream: Any = self.world.follow(
            self.subjects.snapshots_stream, [self.subjects.pool_snapshot("*")], "all"
        )
        async with aclosing(stream) as messages:
            async for stored in messages:
                snapshot = MEASURED.decode(stored.body)
                if isinstance(snapshot, SourceUnread):
                    continue
                assert isinstance(snapshot, PoolSnapshot)
                self.snapshots.append(snapshot)
                self.headers.append(dict(stored.headers))

    async def job(self, queue: str = "reports", count: int = 1) -> None:
        subject = self.subjects.queue(queue)
        messages = [Outgoing(subject, b"job", {JOB: f"{queue}-{n}"}) for n in range(count)]
        for answer in await self.world.append_many(messages):
            assert not isinstance(answer, BusError), answer

    async def name(self, worker: str, pool: str = "reports", host: str = "a") -> None:
        """The host's executor names a worker, as it does when it starts one."""
        self._named.setdefault(pool, set()).add(worker)
        pools = {
            pool: PoolWorkers(
                planned=len(names), started=len(names), ready=0, names=tuple(sorted(names))
            )
            for pool, names in self._named.items()
        }
        snapshot = HostSnapshot(host=host, cpu_cores=4, memory_bytes=8 * GIB, pools=pools)
        await self.world.append(Outgoing(self.subjects.host_snapshot(host), encode(snapshot)))

    async def report(self, number: int = 1, pool: str = "reports", **changes: Any) -> None:
        """Of a worker that its executor names."""
        worker = changes.get("worker", "w1")
        if worker not in self._named.get(pool, ()):
            await self.name(worker, pool)
        await self.forge(number, pool, **changes)

    async def forge(self, number: int = 1, pool: str = "reports", **changes: Any) -> None:
        """Of any worker."""
        usual = {"worker": "w1", "host": "a", "pid": 7, "state": "idle", "started_at": 0.0}
        report = WorkerReport(**{**usual, "pool": pool, "number": number, "at": number, **changes})
        subject = self.subjects.worker_report(report.host, report.worker)
        await self.world.signal(subject, encode(report))

    async def seen(self, within: float = 5.0, **wanted: Any) -> PoolSnapshot:
        """The first snapshot from now on that has these values (a callable judges)."""
        start = len(self.snapshots)

        def fits(snapshot: PoolSnapshot) -> bool:
            values = ((getattr(snapshot, name), want) for name, want in wanted.items())
            return all(want(value) if callable(want) else value == want for value, want in values)

        def find() -> list[PoolSnapshot]:
            return [snapshot for snapshot in self.snapshots[start:] if fits(snapshot)]

        return (await eventually(find, within, f"a snapshot with {wanted}"))[0]


def known(value: object) -> bool:
    return value is not None


def sketch(*values: float) -> bytes:
    made = kll_doubles_sketch(200)
    for value in values:
        made.update(value)
    return made.serialize()
