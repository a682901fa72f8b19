"""A whole installation: a broker, two orchestrators, two hosts with executor and workers."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import psutil
from tests.chaos.chaos_jobs import QUEUE, VAULT
from tests.chaos.links import Disk, Link
from tests.integration import orchestrating

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusError, Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.scaling import WorkersScaled
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child
from penstock.runtime.record import Record, living

CLAIM_SECONDS = 1.5
WORKERS = {QUEUE: 2, VAULT: 1}
"""On each host."""
_LOOK_SECONDS = 0.05


class Host:
    """One executor and the workers that it started."""

    def __init__(self, settings: Settings, link: Link) -> None:
        self.settings, self.link = settings, link
        self.run_dir = Path(settings.host.run_dir)

    def start(self) -> Child:
        written = msgspec.json.encode(self.settings).decode()
        argv = [*self.link.prefix, sys.executable, "-m", "tests.integration.executing", written]
        name = self.settings.host.name
        return children.start(argv, name=name, log=self.run_dir.parent / f"{name}.log")

    def workers(self) -> list[Record]:
        return [each for each in living(self.run_dir) if _runs(each.pid)]


class Site:
    """What faults are done to, and what load is put on."""

    def __init__(
        self, broker: Broker, settings: Settings, bus: NatsBus, hosts: list[Host], disk: Disk | None
    ) -> None:
        self.broker, self.settings, self.bus, self.hosts = broker, settings, bus, hosts
        self.disk = disk
        self.subjects = Subjects(settings.prefix)
        self.client = Client.over(bus, settings)
        self.witness = Path(settings.host.run_dir).parent / "witness"
        self.acknowledged: list[str] = []
        self.ended: set[str] = set()
        self.recovered = self.refused = 0
        self._starts: list[Callable[[], Child]] = [
            *(host.start for host in hosts),
            *[lambda: orchestrating.start(settings)] * 2,
        ]
        self._children: list[Child] = []

    @property
    def executors(self) -> list[Child]:
        return self._children[: len(self.hosts)]

    @property
    def orchestrators(self) -> list[Child]:
        return self._children[len(self.hosts) :]

    def workers(self) -> list[Record]:
        return [worker for host in self.hosts for worker in host.workers()]

    async def command(self) -> None:
        """What a decider would: so many workers on each host."""
        for host in self.hosts:
            name = host.settings.host.name
            plan = WorkersScaled(host=name, epoch=1, version=1, pools=WORKERS)
            await self.bus.append(Outgoing(self.subjects.command(name), encode(plan)))

    async def supervise(self) -> None:
        """Starts executors and orchestrators, and again those that end, as systemd would."""
        self._children = [start() for start in self._starts]
        while True:
            for index, child in enumerate(self._children):
                if child.exit_code is not None:
                    self._children[index] = self._starts[index]()
            await asyncio.sleep(_LOOK_SECONDS)

    async def watch(self) -> None:
        """Counts what faults and load wait for."""
        names = ("JobCompleted", "JobDead", "JobCancelled", "JobRecovered")
        wanted = [self.subjects.events("job", "*", name) for name in names]
        async for stored in self.bus.follow(self.subjects.events_stream, wanted, "all"):
            _, job_id, name = stored.subject.rsplit(".", 2)
            if name == "JobRecovered":
                self.recovered += 1
            else:
                self.ended.add(job_id)

    async def end(self) -> None:
        """Nothing of it runs afterwards."""
        for worker in self.workers():
            with suppress(psutil.Error):
                psutil.Process(worker.pid).resume()
        await asyncio.gather(*(child.stop(5.0) for child in self._children))
        for worker in self.workers():
            with suppress(psutil.Error):
                psutil.Process(worker.pid).send_signal(signal.SIGKILL)
        with suppress(BusError):
            await self.bus.close()


@asynccontextmanager
async def site(
    broker: Broker, links: list[Link], folder: Path, disk: Disk | None = None
) -> AsyncIterator[Site]:
    """An installation at work.

    Args:
        links: one a host. folder: for run folders, logs and what jobs tell.
        disk: that the broker stores on, if it is one that can be filled.
    """
    settings = _settings(broker.url, "client", folder)
    hosts = [
        Host(_settings(link.url, f"host-{name}", folder), link)
        for name, link in zip("ab", links, strict=True)
    ]
    found = Site(broker, settings, await connect(settings, "chaos"), hosts, disk)
    await found.command()
    at_work = [asyncio.create_task(found.supervise()), asyncio.create_task(found.watch())]
    try:
        yield found
    finally:
        for task in at_work:
            task.cancel()
        outcomes = await asyncio.gather(*at_work, return_exceptions=True)
        await found.end()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


def _settings(url: str, name: str, folder: Path) -> Settings:
    return check(
        {
            "nats": {"url": url, "request_timeout_seconds": 1, "connect_timeout_seconds": 10},
            "streams": {"events_max_bytes": 16_000_000},
            "pools": {
                QUEUE: {"tries": 1},
                VAULT: {"kind": "exclusive", "min_workers": 2, "max_workers": 2, "tries": 1},
            },
            "jobs": {
                "modules": ["tests.chaos.chaos_jobs"],
                "claim_seconds": CLAIM_SECONDS,
                "exclusive_lease_seconds": CLAIM_SECONDS,
                "cancel_grace_seconds": 0.2,
                "max_lost_workers": 1000,
            },
            "host": {
                "name": name,
                "run_dir": str(folder / name),
                "drain_seconds": 2,
                "orphan_grace_seconds": 3,
            },
            "spark": {"remote": "sc://127.0.0.1:1"},  # no keeper, no Java
        }
    )


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
