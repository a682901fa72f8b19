"""An executor as a real process, the commands it is sent and what it tells."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import psutil
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus, Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import Event, encode
from penstock.events.scaling import WorkersScaled
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects
from penstock.events.worker import WORKER_EVENTS
from penstock.executor.app import run
from penstock.runtime import children
from penstock.runtime.workers.record import Record, living

E = TypeVar("E", bound=Event)
JOBS = "tests.integration.executor_jobs"


class Stage:
    """One host. Events are collected as they are published."""

    def __init__(self, settings: Settings, bus: Bus) -> None:
        self.settings, self.bus = settings, bus
        self.host = settings.host.name
        self.subjects = Subjects(settings.prefix)
        self.run_dir = Path(settings.host.run_dir)
        self.events: list[Event] = []
        self.log = self.run_dir.parent / "executor.log"
        self._version = 0
        self._executors: list[children.Child] = []
        self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        subjects = [self.subjects.events("worker"), self.subjects.events("host")]
        stream = self.subjects.events_stream
        async for message in self.bus.follow(stream, subjects, start="all"):
            event = WORKER_EVENTS.decode(message.body)
            assert isinstance(event, Event)
            self.events.append(event)

    def start(self, env: Mapping[str, str] | None = None) -> children.Child:
        """Starts an executor process, with these variables beside this process's own."""
        settings = msgspec.json.encode(self.settings).decode()
        argv = [sys.executable, "-m", "tests.integration.executing", settings]
        child = children.start(argv, name="executor", log=self.log, env=env)
        self._executors.append(child)
        return child

    async def command(self, pools: dict[str, int], **fields: Any) -> None:
        self._version += 1
        known = {"host": self.host, "epoch": 1, "version": self._version}
        plan = WorkersScaled(pools=pools, **{**known, **fields})
        await self.send(encode(plan))

    async def send(self, body: bytes) -> None:
        await self.bus.append(Outgoing(self.subjects.command(self.host), body))

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    async def seen(self, kind: type[E], count: int = 1, within: float = 60.0) -> list[E]:
        """The first ``count`` events of a kind, as soon as they are there."""
        await eventually(lambda: len(self.of(kind)) >= count, within, f"{count} {kind.__name__}")
        return self.of(kind)

    async def snapshot(self) -> HostSnapshot | None:
        subject = self.subjects.host_snapshot(self.host)
        stored = await self.bus.last(self.subjects.snapshots_stream, subject)
        found = SNAPSHOTS.decode(stored.body) if stored else None
        assert found is None or isinstance(found, HostSnapshot)
        return found

    async def pool(self, pool: str, within: float = 60.0, **expected: int) -> None:
        """Waits until the host tells these numbers of a pool."""

        async def told() -> bool:
            snapshot = await self.snapshot()
            sets = snapshot.pools.get(pool) if snapshot else None
            return sets is not None and all(getattr(sets, k) == n for k, n in expected.items())

        await eventually(told, within, f"{pool}: {expected}")

    async def logged(self, text: str, count: int = 1) -> None:
        """Waits until the executor's log holds a text so often."""
        await eventually(lambda: self.log.read_text().count(text) >= count, 30, f"log: {text}")

    def living(self) -> list[Record]:
        """Recorded workers that run (a zombie does not)."""
        return [each for each in living(self.run_dir) if _runs(each.pid)]

    async def close(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        for child in self._executors:
            await child.stop(grace_seconds=10)
        for each in self.living():  # of an executor that was killed
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@asynccontextmanager
async def stage(make: MakeSettings, **tables: Any) -> AsyncIterator[Stage]:
    known: dict[str, Any] = {
        "pools": {"mail": {}},
        "jobs": {"modules": [JOBS]},
        "host": {"drain_seconds": 5.0, "orphan_grace_seconds": 2.0},
        "spark": {"remote": "sc://127.0.0.1:1"},  # no keeper, no Java
    }
    settings = make(**{**known, **tables})
    bus = await connect(settings)
    found = Stage(settings, bus)
    try:
        yield found
    except BaseException:
        print(found.log.read_text() if found.log.exists() else "no log")  # noqa: T201
        raise
    finally:
        await found.close()
        await bus.close()


def main() -> None:
    """The executor's process."""
    import logging

    logging.basicConfig(
        level="INFO",
        format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s",
        datefmt="%M:%S",
    )
    run(check(json.loads(sys.argv[1])))


if __name__ == "__main__":
    main()
