"""Every service of an installation as a process of its own, on one broker or on three."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from tests.turnover.turnover_jobs import HELD, LATER, PAUSED, TRAFFIC, WORK

from broker_memory import live_heap_bytes
from penstock.bus.nats import NatsBus
from penstock.bus.protocol import BusError
from penstock.config import Settings, load
from penstock.runtime import children
from penstock.runtime.broker import Broker
from penstock.runtime.children import Child
from penstock.runtime.paths import LOOPBACK, free_port
from penstock.runtime.workers.record import living

ROOT = Path(__file__).parents[2]
SERVICES = ("orchestrator", "orchestrator-2", "metrics", "decider", "executor")
_LOOK_SECONDS = 0.1
_AWAY_SECONDS = 4.0
_CONFIG = """
[nats]
url = "{url}"
request_timeout_seconds = 3
connect_timeout_seconds = 120
[streams]
events_max_bytes = {log_bytes}
replicas = {replicas}
[jobs]
modules = ["tests.turnover.turnover_jobs"]
max_lost_workers = 10_000
[dispatch]
when_away = "wait"
wait_seconds = 120
[http]
address = ""
[spark]
remote = "sc://127.0.0.1:1"
[stuck]
strategy = "off"
[host]
name = "turned"
run_dir = "{run_dir}"
reserve_cpu_cores = 0
reserve_memory_bytes = 0
max_cpu_share = 1
max_memory_share = 1
drain_seconds = 2
"""
_POOL = """
[pools.{name}]
strategy = "fixed"
min_workers = {workers}
max_workers = {workers}
cpu_cores = 0.01
memory_bytes = 1_000_000
"""


class Node(Broker):
    """One of three brokers.

    Args:
        routes: the port of each for the others, by name.
    """

    def __init__(self, name: str, routes: Mapping[str, int]) -> None:
        super().__init__(port=free_port())
        self.name, self._routes = name, routes

    def _config(self) -> str:
        settings: dict[str, Any] = json.loads(super()._config())
        others = [port for name, port in self._routes.items() if name != self.name]
        settings["server_name"] = self.name
        settings["cluster"] = {
            "name": "turnover",
            "listen": f"{LOOPBACK}:{self._routes[self.name]}",
            "routes": [f"nats-route://{LOOPBACK}:{port}" for port in others],
        }
        return json.dumps(settings)


@contextmanager
def brokers(replicas: int) -> Iterator[dict[str, Broker]]:
    """One, or a cluster of three; by name."""
    with ExitStack() as stack:
        if replicas == 1:
            yield {"": stack.enter_context(Broker())}
            return
        routes = {f"nats-{number}": free_port() for number in range(replicas)}
        nodes = {name: Node(name, routes) for name in routes}
        for node in nodes.values():
            stack.enter_context(node)
        yield dict(nodes)


class Installation:
    """What is killed, and started again as systemd would.

    Args:
        held: workers of the pool whose jobs run all the while.

    Attributes:
        kills: how often each kind of process was killed.
    """

    def __init__(self, nodes: dict[str, Broker], folder: Path, log_bytes: int, held: int) -> None:
        self.nodes, self.folder = nodes, folder
        self.url = ",".join(node.url for node in nodes.values())
        self.run_dir = folder / "run"
        self.config = folder / "penstock.toml"
        workers = {WORK: 2, HELD: held, PAUSED: 1, LATER: 0, TRAFFIC: 1}
        self.config.write_text(
            _CONFIG.format(
                url=self.url, log_bytes=log_bytes, replicas=len(nodes), run_dir=self.run_dir
            )
            + "".join(_POOL.format(name=name, workers=n) for name, n in workers.items())
        )
        self.settings: Settings = load(str(self.config))
        self.kills: dict[str, int] = {}
        self.children: dict[str, Child] = {}
        self._is_open = True

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "penstock.cli.main", "--config", str(self.config), *words]

    @property
    def environment(self) -> dict[str, str]:
        others = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**others, "PYTHONPATH": os.pathsep.join(paths)}

    def _start(self, name: str) -> Child:
        service, _, pool = name.partition(":")
        words = ("worker", "--pool", pool) if pool else (service.split("-")[0],)
        log = self.folder / f"{name.replace(':', '-')}.log"
        return children.start(self.command(*words), name=name, log=log, env=self.environment)

    async def supervise(self) -> None:
        """Starts the services, and again those that end."""
        for name in SERVICES:
            self.children[name] = self._start(name)
        while True:
            for name, child in list(self.children.items()):
                if child.exit_code is not None:
                    self.children[name] = self._start(name)
            await asyncio.sleep(_LOOK_SECONDS)

    def serve(self, pool: str, workers: int) -> None:
        """Starts workers of a pool that had none."""
        for number in range(workers):
            self.children[f"worker-{number}:{pool}"] = self._start(f"worker-{number}:{pool}")

    def workers(self) -> list[int]:
        """Process ids of the workers that the executor started."""
        return [one.pid for one in living(self.run_dir) if _runs(one.pid)]

    async def kill(self, kind: str, pick: float, bus: NatsBus) -> None:
        """SIGKILL to one process of a kind; ``pick``, of 0 to 1, says which."""
        if kind == "broker":
            await self._kill_broker(bus)
        elif kind == "worker":
            pids = self.workers()
            if not pids:
                return
            with suppress(psutil.Error):
                psutil.Process(pids[int(pick * len(pids))]).kill()
        else:
            names = [name for name in self.children if name.startswith(kind)]
            self.children[names[int(pick * len(names))]].signal(signal.SIGKILL)
        self.kills[kind] = self.kills.get(kind, 0) + 1

    async def _kill_broker(self, bus: NatsBus) -> None:
        """The only one, or the one that leads the event log."""
        if len(self.nodes) == 1:
            self.nodes[""].restart()
            return
        node = self.nodes[await self._leader(bus)]
        node.kill()
        await asyncio.sleep(_AWAY_SECONDS)
        if self._is_open:
            node.start()

    async def _leader(self, bus: NatsBus) -> str:
        """Name of the broker that leads the event log."""
        while True:
            with suppress(BusError):
                info = await bus._api(f"STREAM.INFO.{bus.subjects.events_stream}")
                if leader := info.get("cluster", {}).get("leader"):
                    return str(leader)
            await asyncio.sleep(_LOOK_SECONDS)

    def rss(self, kind: str) -> int:
        """Resident bytes of the largest process of a kind."""
        if kind == "broker":
            pids = [node.child.pid for node in self.nodes.values() if node.child]
        else:
            pids = [child.pid for name, child in self.children.items() if name.startswith(kind)]
        return max((_rss(pid) for pid in pids), default=0)

    def heap_bytes(self) -> int:
        """What the last garbage collection of the broker that has most left it."""
        return max((live_heap_bytes(node) for node in self.nodes.values()), default=0)

    def disk_bytes(self) -> int:
        """What the largest store of a broker takes."""
        return max(_size(node._folder / "store") for node in self.nodes.values())

    async def end(self) -> None:
        """Nothing of it runs afterwards."""
        self._is_open = False
        await asyncio.gather(*(child.stop(15.0) for child in self.children.values()))
        for pid in self.workers():
            with suppress(psutil.Error):
                psutil.Process(pid).kill()


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _rss(pid: int) -> int:
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def _size(folder: Path) -> int:
    size = 0
    for place, _, names in os.walk(folder):  # goes on where a folder vanishes meanwhile
        for name in names:
            with suppress(OSError):
                size += (Path(place) / name).stat().st_blocks * 512
    return size
