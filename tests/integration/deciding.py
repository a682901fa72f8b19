"""The world around a decider under test: pools and hosts that report, and what it published."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from tests.installation import Connector, RunningService
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.protocol import Bus, BusError, Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.decider.app import body, run
from penstock.events.envelope import Codec, Event, encode
from penstock.events.job import JobCompleted, JobDispatched, JobStarted
from penstock.events.scaling import SCALING_EVENTS, ScalingDecisionMade, WorkersScaled
from penstock.events.snapshot import HostSnapshot, PoolSnapshot, Quantiles
from penstock.events.subjects import Subjects
from penstock.events.worker import WORKER_EVENTS
from penstock.runtime import children
from penstock.runtime.children import Child
from penstock.runtime.service import Service

GIB = 1024**3
E = TypeVar("E", bound=Event)

_EVERYTHING = Codec(*SCALING_EVENTS, *WORKER_EVENTS)

EMAILS = {
    "emails": {
        "strategy": "hybrid",  # its numbers are plain: rate times run time
        "min_workers": 0,
        "max_workers": 50,
        "scale_down_cooldown_seconds": 0,
    },
}
QUICK = {"lease_seconds": 0.9, "stale_seconds": 2.0, "repeat_seconds": 0.0}


class World:
    """One installation, on either bus.

    Attributes:
        heard: every event on the log, in order; commands: every command, in order.
    """

    def __init__(self, kind: str, make: MakeSettings, **tables: Any) -> None:
        tables = {"pools": EMAILS, "decider": QUICK, **tables}
        self.settings: Settings = make(**tables)
        self.subjects = Subjects(self.settings.prefix)
        self.heard: list[Event] = []
        self.commands: list[WorkersScaled] = []
        self.bus: Bus
        self.client = Connector(kind, self.settings).connect
        self._services: list[RunningService] = []
        self.processes: list[Child] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._hosts: dict[str, asyncio.Task[None]] = {}

    async def open(self) -> None:
        self.bus = await self.client()
        listening = (self.subjects.events_stream, [self.subjects.events()], self._hear)
        commanding = (self.subjects.commands_stream, [self.subjects.command("*")], self._obey)
        for stream, patterns, handler in (listening, commanding):
            self._tasks.append(asyncio.create_task(self._follow(stream, patterns, handler)))

    async def close(self) -> None:
        for child in self.processes:
            child.signal(signal.SIGCONT)
            await child.stop()
        for running in self._services:
            await running.stop()
        ended = [*self._tasks, *self._hosts.values()]
        for each in ended:
            each.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await self.bus.close()

    # --- deciders -------------
    async def start(self, wrap: Callable[[Bus], Bus] = lambda bus: bus) -> Service:
        running = RunningService("decider", self.settings, wrap(await self.client()), body)
        self._services.append(running)
        return running.service

    async def stop(self, service: Service) -> None:
        """In order: it lets go of the lease."""
        service.stopping.set()
        await self._running(service).task

    async def freeze(self, service: Service) -> None:
        """As if it was killed: nothing of it runs any more, nothing is let go."""
        running = self._running(service)
        self._services.remove(running)
        await running.kill()

    def _running(self, service: Service) -> RunningService:
        return next(running for running in self._services if running.service is service)

    def process(self) -> Child:
        """A decider of its own, to be killed and stopped."""
        settings = msgspec.json.encode(self.settings).decode()
        argv = [sys.executable, "-m", "tests.integration.deciding", settings]
        log = Path(self.settings.host.run_dir).parent / f"decider-{len(self.processes)}.log"
        child = children.start(argv, name="decider", log=log)
        self.processes.append(child)
        return child

    # --- the world -------------
    async def report(self, pool: str = "emails", **fields: Any) -> PoolSnapshot:
        """A snapshot of a pool: by default of an idle one whose jobs take 2 s."""
        took = Quantiles(count=9, mean_seconds=2, p50_seconds=2, p95_seconds=2, p99_seconds=2)
        fields = {"waiting": 0, "arrival_per_second": 0.0, "service": took, **fields}
        snapshot = PoolSnapshot(pool=pool, queues=(pool,), **fields)
        await self.append(self.subjects.pool_snapshot(pool), encode(snapshot))
        return snapshot

    async def append(self, subject: str, raw: bytes) -> None:
        await self.bus.append(Outgoing(subject, raw))

    def host(self, name: str = "a", **fields: Any) -> None:
        """A host that reports five times a second until it vanishes."""
        self.vanish(name)
        self._hosts[name] = asyncio.create_task(self._beat(name, fields))

    def vanish(self, name: str) -> None:
        if old := self._hosts.pop(name, None):
            old.cancel()

    async def _beat(self, name: str, fields: dict[str, Any]) -> None:
        while True:
            usual = {"cpu_cores": 64, "memory_bytes": 64 * GIB, **self._obeyed(name)}
            snapshot = HostSnapshot(host=name, **{**usual, **fields})
            with suppress(BusError):  # a broker that is away: the next one will do
                await self.append(self.subjects.host_snapshot(name), encode(snapshot))
            await asyncio.sleep(0.2)

    def _obeyed(self, host: str) -> dict[str, int]:
        """An executor obeys at once, and its snapshots say what."""
        found = [each.order for each in self.commands if each.host == host]
        return dict(zip(("epoch", "version"), max(found, default=(0, 0)), strict=True))

    # --- what was said -------------
    def events(self, kind: type[E], **fields: Any) -> list[E]:
        return [
            event
            for event in self.heard
            if isinstance(event, kind)
            and all(getattr(event, name) == value for name, value in fields.items())
        ]

    async def event(self, kind: type[E], within: float = 5.0, **fields: Any) -> E:
        """The first such event, waited for."""
        found = await eventually(
            lambda: self.events(kind, **fields), within, f"{kind.__name__} {fields}"
        )
        return found[0]

    async def plan(self, host: str, within: float = 5.0, **pools: int) -> WorkersScaled:
        """The command that makes this the host's plan, waited for."""
        await eventually(lambda: self.plan_of(host) == pools, within, f"plan {pools} of {host}")
        return next(each for each in reversed(self.commands) if each.host == host)

    def plan_of(self, host: str) -> dict[str, int] | None:
        found = [command.pools for command in self.commands if command.host == host]
        return found[-1] if found else None

    async def decided(self, count: int = 1, pool: str = "emails") -> ScalingDecisionMade:
        """``count`` decisions of a pool from now on; the last one."""
        before = len(self.events(ScalingDecisionMade, pool=pool))
        await eventually(
            lambda: len(self.events(ScalingDecisionMade, pool=pool)) >= before + count,
            what="decisions",
        )
        return self.events(ScalingDecisionMade, pool=pool)[-1]

    async def _follow(
        self, stream: str, patterns: list[str], handler: Callable[[Event], None]
    ) -> None:
        async for stored in self.bus.follow(stream, patterns, start="all"):
            event = _EVERYTHING.decode(stored.body)
            if isinstance(event, Event):
                handler(event)

    def _hear(self, event: Event) -> None:
        self.heard.append(event)

    def _obey(self, event: Event) -> None:
        assert isinstance(event, WorkersScaled)
        self.commands.append(event)


@asynccontextmanager
async def world(kind: str, make: MakeSettings, **tables: Any) -> AsyncIterator[World]:
    found = World(kind, make, **tables)
    await found.open()
    try:
        yield found
    finally:
        await found.close()


async def dispatched(here: World, jobs: int) -> None:
    """Jobs of the queue emails that ran for 1 s, one after the other, in the event log."""
    for number in range(jobs):
        about: dict[str, Any] = {"job_id": f"j{number}", "queue": "emails"}
        for event in (
            JobDispatched(**about, function="send", payload=b""),
            JobStarted(**about, attempt=1, host="a", worker="w"),
            JobCompleted(**about, attempt=1, run_seconds=1.0),
        ):
            await here.append(here.subjects.event(event), encode(event))


if __name__ == "__main__":  # a decider process, its settings as JSON
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(message)s")
    run(check(json.loads(sys.argv[1])))
