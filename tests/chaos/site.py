"""A whole installation: a broker, two orchestrators, two hosts with executor and workers."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import psutil
from tests.chaos.chaos_jobs import QUEUE, VAULT
from tests.chaos.clocks import Clock
from tests.chaos.disks import Disk
from tests.chaos.links import Link
from tests.histories import Entry
from tests.integration import orchestrating
from tests.integration.guarded import GuardedBroker
from tests.programs.model import Expected
from tests.programs.program import Story
from tests.waiting import eventually

from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import BusError, Outgoing
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.batch import (
    BATCH_EVENTS,
    BatchCancelled,
    BatchCompleted,
    BatchFailed,
    Counts,
)
from penstock.events.envelope import encode
from penstock.events.job import JOB_EVENTS
from penstock.events.scaling import LeaderChanged, WorkersScaled
from penstock.events.subjects import Subjects
from penstock.jobs import Client
from penstock.jobs.event_store.event_log import read_event
from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child
from penstock.runtime.workers.record import Record, living

CLAIM_SECONDS = 1.5
WORKERS = {QUEUE: 2, VAULT: 1}
"""On each host."""
_ORCHESTRATORS = 2
FORGED = "forged-"
"""Begins the names of jobs that a stranger wrote about."""
HARNESS = ("orchestrator", "dispatcher", "decider", "worker")
"""Roles whose keys the harness uses, for what they may do."""
_LOOK_SECONDS = 0.05


class Host:
    """One executor and the workers that it started."""

    def __init__(self, settings: Settings, link: Link, clock: Clock | None) -> None:
        self.settings, self.link, self.clock = settings, link, clock
        self.run_dir = Path(settings.host.run_dir)

    def start(self) -> Child:
        written = msgspec.json.encode(self.settings).decode()
        argv = [*self.link.prefix, sys.executable, "-m", "tests.integration.executing", written]
        name = self.settings.host.name
        log = self.run_dir.parent / f"{name}.log"
        return children.start(argv, name=name, log=log, env=_environment(self.clock))

    def workers(self) -> list[Record]:
        return [each for each in living(self.run_dir) if _runs(each.pid)]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What an installation is made of.

    Attributes:
        links: one a host. folder: for run folders, logs and what jobs record of their runs.
        disk: that the broker stores on, where it is one that can be filled.
        clocks: of the hosts, then of the orchestrators; empty where none can be set.
        events_max_bytes: of the event log.
    """

    broker: Broker
    links: list[Link]
    folder: Path
    disk: Disk | None = None
    clocks: list[Clock] = []
    events_max_bytes: int = 64_000_000

    def settings(self, url: str, name: str, role: str) -> Settings:
        """Of the process ``name``; with the keys of ``role``, where the broker asks for them."""
        nats = {"url": url, "request_timeout_seconds": 1, "connect_timeout_seconds": 10}
        if isinstance(self.broker, GuardedBroker):
            keys = self.broker.secrets
            nats |= {"ca_file": f"{keys}/{role}/ca.pem", "nkey_file": f"{keys}/{role}/nkey.seed"}
            if role == "executor":
                nats["worker_nkey_file"] = f"{keys}/worker/nkey.seed"
        return _settings(nats, name, self.folder, self.events_max_bytes)

    def clock(self, number: int) -> Clock | None:
        return self.clocks[number] if self.clocks else None


class Site:
    """What faults are done to, and what load is put on.

    Attributes:
        buses: a connection for each role of `HARNESS`.
        histories: what was recorded of each job, as it was stored; the log may discard it later.
        batches: counts of each batch that has ended.
        stories: what each workflow does, and how it must end.
        recorded: the sequence of the last event in it.
        recoveries: for each fault of the whole installation, how long until jobs ended again.
        turned_over: whether the log has discarded what it held.
        unseen: first and last sequence of what the recorder did not see: no verdict holds then.
        fallen: services that ended by themselves, and how; none may.
    """

    def __init__(self, parts: Parts, buses: dict[str, NatsBus], hosts: list[Host]) -> None:
        self.parts, self.buses, self.hosts = parts, buses, hosts
        self.broker, self.disk = parts.broker, parts.disk
        self.bus = buses["orchestrator"]
        self.settings = parts.settings(self.broker.url, "client", "dispatcher")
        self.subjects = Subjects(self.settings.prefix)
        self.client = Client.over(buses["dispatcher"], self.settings)
        self.witness = parts.folder / "witness"
        self.acknowledged: list[str] = []
        self.ended: set[str] = set()
        self.histories: dict[str, list[Entry]] = {}
        self.batches: dict[str, Counts] = {}
        self.stories: dict[str, tuple[Story, Expected]] = {}
        self.recoveries: list[tuple[str, float]] = []
        self.recovered = self.refused = self.recorded = 0
        self.turned_over = False
        self.unseen: list[tuple[int, int]] = []
        self.fallen: list[str] = []
        self._starts: list[Callable[[], Child]] = [
            *(host.start for host in hosts),
            *(partial(self._start_orchestrator, number) for number in range(_ORCHESTRATORS)),
        ]
        self._children: list[Child] = []

    def _start_orchestrator(self, number: int) -> Child:
        settings = self.parts.settings(self.broker.url, f"orchestrator-{number}", "orchestrator")
        clock = self.parts.clock(len(self.hosts) + number)
        return orchestrating.start(settings, environment=_environment(clock))

    @property
    def executors(self) -> list[Child]:
        return self._children[: len(self.hosts)]

    @property
    def orchestrators(self) -> list[Child]:
        return self._children[len(self.hosts) :]

    def workers(self) -> list[Record]:
        return [worker for host in self.hosts for worker in host.workers()]

    async def command(self) -> None:
        """What a decider does that has just become the leader: so many workers on each host."""
        decider = self.buses["decider"]
        lease = self.subjects.state("lease", "decider")
        epoch = await decider.append(Outgoing(lease, b"{}"))
        leads = LeaderChanged(leader="chaos", epoch=epoch)
        await decider.append(Outgoing(self.subjects.event(leads), encode(leads)))
        for host in self.hosts:
            name = host.settings.host.name
            plan = WorkersScaled(host=name, epoch=epoch, version=1, pools=WORKERS)
            await decider.append(Outgoing(self.subjects.command(name), encode(plan)))

    async def supervise(self) -> None:
        """Starts executors and orchestrators, and again those that end, as systemd would."""
        self._children = [start() for start in self._starts]
        while True:
            for index, child in enumerate(self._children):
                if child.exit_code is not None:
                    if child.exit_code != -signal.SIGKILL:  # which is what faults send
                        self.fallen.append(f"{child.name} ended with {child.exit_code}")
                    self._children[index] = self._starts[index]()
            await asyncio.sleep(_LOOK_SECONDS)

    async def watch(self) -> None:
        """Records events as they are stored, and counts what faults and load wait for.

        Of all nouns, so that sequences have no gaps but where one was discarded before it was read.
        """
        patterns = [self.subjects.events()]
        async for stored in self.bus.follow(self.subjects.events_stream, patterns, "all"):
            if stored.sequence != self.recorded + 1:
                self.unseen.append((self.recorded + 1, stored.sequence - 1))
            self.recorded = stored.sequence
            _, noun, job_id, name = stored.subject.rsplit(".", 3)
            if job_id.startswith(FORGED) or noun not in ("job", "batch"):
                continue
            if noun == "batch":
                batch_event = read_event(stored, BATCH_EVENTS)
                if isinstance(batch_event, BatchCompleted | BatchFailed | BatchCancelled):
                    self.batches[job_id] = batch_event.counts
                continue
            event = read_event(stored, JOB_EVENTS)
            self.histories.setdefault(job_id, []).append((stored.sequence, event))
            if name == "JobRecovered":
                self.recovered += 1
            elif name in ("JobCompleted", "JobDead", "JobCancelled"):
                self.ended.add(job_id)

    async def up_to_date(self) -> bool:
        """Whether all events that the broker stored until now are recorded."""
        last = await self.bus.last(self.subjects.events_stream, self.subjects.events())
        return last is None or self.recorded >= last.sequence

    async def staffed(self, within_seconds: float) -> None:
        """Returns when each host has the workers that it was commanded to have."""
        wanted = sum(WORKERS.values())
        await eventually(
            lambda: all(len(host.workers()) == wanted for host in self.hosts),
            within_seconds,
            f"{wanted} workers on each host",
        )

    async def end(self) -> None:
        """Nothing of it runs afterwards."""
        for worker in self.workers():
            with suppress(psutil.Error):
                psutil.Process(worker.pid).resume()
        await asyncio.gather(*(child.stop(5.0) for child in self._children))
        for worker in self.workers():
            with suppress(psutil.Error):
                psutil.Process(worker.pid).send_signal(signal.SIGKILL)
        for bus in self.buses.values():
            with suppress(BusError):
                await bus.close()


@asynccontextmanager
async def site(parts: Parts) -> AsyncIterator[Site]:
    """An installation at work."""
    hosts = [
        Host(parts.settings(link.url, f"host-{name}", "executor"), link, parts.clock(number))
        for number, (name, link) in enumerate(zip("ab", parts.links, strict=True))
    ]
    buses = {
        role: await connect(parts.settings(parts.broker.url, "client", role), f"chaos {role}")
        for role in HARNESS
    }
    installation = Site(parts, buses, hosts)
    await installation.command()
    at_work = [
        asyncio.create_task(installation.supervise()),
        asyncio.create_task(installation.watch()),
    ]
    try:
        yield installation
    finally:
        for task in at_work:
            task.cancel()
        outcomes = await asyncio.gather(*at_work, return_exceptions=True)
        await installation.end()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


def _environment(clock: Clock | None) -> dict[str, str]:
    return clock.environment if clock else {}


def _settings(nats: dict[str, object], name: str, folder: Path, events_max_bytes: int) -> Settings:
    return check(
        {
            "nats": nats,
            "streams": {"events_max_bytes": events_max_bytes},
            "logs": {"max_bytes": 4_000_000},  # the small disk has room for little
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
                "unknown_after_seconds": 0,
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
