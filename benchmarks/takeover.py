"""From the kill of a worker to its job running elsewhere, while long jobs live beside. Prints JSON.

Two ways to die: the worker alone, whose executor gives its job back; and worker and executor at
once, as when a host is gone, where the job's claim must lapse. Meanwhile a host of its own runs
long jobs: loops in Python, C code that holds the interpreter, and processes that are stopped for
half a claim. None of those may be begun twice. All settings are the defaults. With ``--guard
accounts`` broker and processes have TLS, a key for each role and an account for each key.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import uvloop
from msgspec.structs import replace

from guarded import MODES, PLAIN, Guarded
from machine import describe
from penstock.bus.nats import NatsBus, connect
from penstock.bus.protocol import Outgoing
from penstock.cli.deploy.keys import write
from penstock.config import Settings
from penstock.config.load import check
from penstock.events.envelope import encode
from penstock.events.scaling import WorkersScaled
from penstock.events.subjects import Subjects
from penstock.executor import app
from penstock.jobs import Client
from penstock.orchestrator import app as orchestrating
from penstock.runtime.paths import LOOPBACK, temporary_dir
from penstock.worker import app as worker_app
from takeover_jobs import LIVE, VICTIMS, Begun, begun, burn_c, burn_python, hold, nap

AT_ONCE = 8
"""Workers killed in a round; as many others are idle."""
LONG_SECONDS = 15.0
PATIENCE_SECONDS = 60.0
SETTLED_SECONDS = 10.5
"""A worker that dies younger counts as one that failed to start."""
_fork = multiprocessing.get_context("fork")
Hire = Callable[[], None]


def settings_for(broker: Guarded, role: str, host: str, folder: Path) -> Settings:
    settings = check(
        {
            "nats": {"url": broker.url},
            "jobs": {"modules": ["takeover_jobs"], "max_lost_workers": 1000},
            "pools": {VICTIMS: {}, LIVE: {}},
            "host": {"name": host, "run_dir": str(folder / host)},
            "spark": {"remote": "sc://127.0.0.1:1"},
        }
    )
    return replace(settings, nats=broker.reach(role, settings.nats))


@contextmanager
def orchestrator(settings: Settings) -> Iterator[None]:
    """With keys, it alone may make the consumers of queues."""
    running = _fork.Process(target=orchestrating.run, args=(settings,))
    running.start()
    try:
        yield
    finally:
        running.terminate()
        running.join()


def serve(settings: Settings) -> None:
    sys.exit(worker_app.main(worker_app.without_executor(settings, VICTIMS)))


@contextmanager
def lone_workers(settings: Settings) -> Iterator[Hire]:
    """Without an executor: nobody sees one die."""
    running: list[BaseProcess] = []

    def hire() -> None:
        alive = [each for each in running if each.is_alive()]
        running[:] = alive
        for _ in range(2 * AT_ONCE - len(alive)):
            running.append(_fork.Process(target=serve, args=(settings,)))
            running[-1].start()

    hire()
    try:
        yield hire
    finally:
        for each in running:
            each.kill()
        for each in running:
            each.join()


@asynccontextmanager
async def host(decider: NatsBus, settings: Settings, pools: dict[str, int]) -> AsyncIterator[None]:
    """A host with its executor, which keeps so many workers."""
    name = settings.host.name
    plan = WorkersScaled(host=name, epoch=1, version=1, pools=pools)
    await decider.append(Outgoing(Subjects().command(name), encode(plan)))
    executor = _fork.Process(target=app.run, args=(settings,))
    executor.start()
    try:
        yield
    finally:
        executor.terminate()
        await asyncio.to_thread(executor.join)


class Rounds:
    """Kills, again and again, the workers that hold some jobs."""

    def __init__(self, client: Client, folder: Path) -> None:
        self._client, self._folder = client, folder
        self._path = folder / "victims"
        self._gates = itertools.count()

    async def kill(self, times: int, hire: Hire | None) -> list[float]:
        """Seconds from each kill to the job's next beginning.

        Args:
            hire: makes up for the dead; None where an executor does, which takes workers that die
                young for a crash loop and so is given time.
        """
        found: list[float] = []
        while len(found) < times:
            found += await self._round()
            if hire is None:
                await asyncio.sleep(SETTLED_SECONDS)
            else:
                hire()
        return found

    async def _round(self) -> list[float]:
        gate = self._folder / f"gate{next(self._gates)}"
        call = hold(path=str(self._path), gate=str(gate))
        ids = [await self._client.dispatch(call) for _ in range(AT_ONCE)]
        first = await self._beginnings(ids, 1)
        killed: dict[str, float] = {}
        for job_id, [beginning] in first.items():
            os.kill(beginning.pid, signal.SIGKILL)
            killed[job_id] = time.monotonic()
        second = await self._beginnings(ids, 2)
        gate.touch()
        for each in ids:
            await self._client.wait(each, PATIENCE_SECONDS)
        return [second[each][1].at - killed[each] for each in ids]

    async def _beginnings(self, ids: list[str], count: int) -> dict[str, list[Begun]]:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                found: dict[str, list[Begun]] = {each: [] for each in ids}
                for beginning in begun(self._path):
                    if beginning.job_id in found:
                        found[beginning.job_id].append(beginning)
                if all(len(beginnings) >= count for beginnings in found.values()):
                    return found
                await asyncio.sleep(0.01)


class LongJobs:
    """Long jobs of each kind, one after another, until told to stop."""

    def __init__(self, client: Client, folder: Path, claim_seconds: float) -> None:
        self._client, self._path = client, folder / "live"
        self._half = claim_seconds / 2
        self.stop = asyncio.Event()
        self._ids: dict[str, list[str]] = {}

    async def run(self) -> None:
        kinds = {"in_python": burn_python, "in_c": burn_c, "stopped_for_half_a_claim": nap}
        async with asyncio.TaskGroup() as lanes:
            for name, kind in kinds.items():
                lanes.create_task(self._lane(name, kind))

    async def _lane(self, name: str, kind: Any) -> None:
        ids = self._ids[name] = []
        while not self.stop.is_set():
            call = kind(path=str(self._path), seconds=LONG_SECONDS)
            ids.append(await self._client.dispatch(call))
            stopping = asyncio.create_task(self._stop(ids[-1])) if kind is nap else None
            await self._client.wait(ids[-1], 20 * LONG_SECONDS)
            if stopping:
                stopping.cancel()
                await asyncio.gather(stopping, return_exceptions=True)

    async def _stop(self, job_id: str) -> None:
        """Its process, for half a claim, again and again."""
        while True:
            await asyncio.sleep(self._half)
            for pid in {each.pid for each in begun(self._path) if each.job_id == job_id}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
                try:
                    await asyncio.sleep(self._half)
                finally:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)

    def result(self) -> dict[str, Any]:
        times = Counter(each.job_id for each in begun(self._path))
        return {
            name: {"jobs": len(ids), "begun_twice": sum(times[each] > 1 for each in ids)}
            for name, ids in self._ids.items()
        }


async def measure(broker: Guarded, folder: Path, kills: int) -> dict[str, Any]:
    def settings(role: str, name: str) -> Settings:
        return settings_for(broker, role, name, folder)

    applying = settings("dispatcher", "client")
    await (await connect(settings("orchestrator", "client"))).close()  # makes the streams
    bus, decider = await connect(applying), await connect(settings("decider", "client"))
    client = Client(bus)
    rounds = Rounds(client, folder)
    long_jobs = LongJobs(client, folder, applying.jobs.claim_seconds)
    result: dict[str, Any] = {}
    with orchestrator(settings("orchestrator", "client")):
        async with host(decider, settings("executor", "steady"), {LIVE: 3}):
            living = asyncio.create_task(long_jobs.run())
            async with host(decider, settings("executor", "hurt"), {VICTIMS: 2 * AT_ONCE}):
                result["worker_killed"] = summary(await rounds.kill(kills, None))
            with lone_workers(settings("worker", "gone")) as hire:
                result["executor_gone_too"] = summary(await rounds.kill(kills, hire))
            long_jobs.stop.set()
            await living
    await bus.close()
    await decider.close()
    return {**result, "long_jobs": long_jobs.result()}


def summary(seconds: list[float]) -> dict[str, Any]:
    cuts = statistics.quantiles(seconds, n=100)
    return {
        "kills": len(seconds),
        "p50_seconds": round(cuts[49], 3),
        "p99_seconds": round(cuts[98], 3),
        "max_seconds": round(max(seconds), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--guard", choices=MODES, default=PLAIN, help="of the broker: %(default)s")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # the executor's workers import the jobs
    with temporary_dir() as folder:
        write(folder / "secrets", "penstock", [LOOPBACK], datetime.now(UTC), 2)
        with Guarded(options.guard, folder / "secrets") as broker:
            found = uvloop.run(measure(broker, folder, options.kills))
    head = {"benchmark": "takeover", "machine": describe(), "guard": options.guard}
    print(json.dumps({**head, **found}, indent=2))


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
