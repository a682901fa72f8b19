"""Two hosts, of which one has the new job code and the other the old one, under load.

No job dies that a worker knows, and none starts later than promised, in either order of a deploy.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.integration.executing import Stage
from tests.making import MakeSettings
from tests.waiting import eventually

from penstock.bus.nats import connect
from penstock.bus.protocol import Bus
from penstock.cli.scaling.reload import reload_hosts
from penstock.events.envelope import new_id
from penstock.events.reloading import ReloadRequested
from penstock.jobs import Client
from penstock.jobs.job_type import Call, NamedJob
from penstock.jobs.job_view import JobView
from penstock.jobs.lifecycle import State

PROMISE_SECONDS = 10.0
PATIENCE_SECONDS = 120.0
QUEUE = "mail"
BEGIN = "from penstock.jobs import job\n"
SAME = """
@job(queue="mail")
def same(number: int) -> int:
    return number
"""
OLD = f"""{BEGIN}{SAME}
@job(queue="mail")
def changed(number: int) -> str:
    return "old"

@job(queue="mail")
def removed(number: int) -> str:
    return "old"
"""
NEW = f"""{BEGIN}{SAME}
@job(queue="mail")
def changed(number: int, colour: str = "red") -> str:
    return "new"

@job(queue="mail")
def added(number: int) -> str:
    return "new"
"""


def call(function: str, **arguments: object) -> Callable[[int], Call]:
    kind = NamedJob(f"deployed_jobs.{function}", queue=QUEUE)
    return lambda number: kind(number=number, **arguments)


OLD_CALLS = (call("same"), call("changed"), call("removed"))
NEW_CALLS = (call("same"), call("changed", colour="blue"), call("added"))
BOTH_KNOW = (call("same"), call("changed"))


class Load(NamedTuple):
    """How many jobs a second, and for how long in each phase."""

    per_second: int
    seconds: float


class Site:
    """Two hosts with a folder of job code each."""

    def __init__(self, bus: Bus, hosts: Sequence[Stage], folders: Sequence[Path]) -> None:
        self.bus, self.hosts, self._folders = bus, hosts, folders
        self.client = Client(bus, prefix=hosts[0].settings.prefix)

    async def deploy(self, number: int) -> None:
        """The new code to one host."""
        (self._folders[number] / "deployed_jobs.py").write_text(NEW)
        host, order = self.hosts[number], ReloadRequested(id=new_id())
        [report] = await reload_hosts(self.bus, host.subjects, order, [host.host], PATIENCE_SECONDS)
        assert report.state == "done", report

    async def dispatch(self, calls: Sequence[Callable[[int], Call]], load: Load) -> list[str]:
        """As many jobs a second as the load says, of each kind in turn."""
        loop, ids = asyncio.get_running_loop(), list[str]()
        kinds = itertools.cycle(calls)
        began, total = loop.time(), int(load.per_second * load.seconds)
        while len(ids) < total:
            due = min(total, int((loop.time() - began) * load.per_second) + 1)
            batch = [next(kinds)(number) for number in range(len(ids), due)]
            ids += await self.client.dispatch_many(batch) if batch else []
            await asyncio.sleep(0.02)
        return ids

    async def views(self, ids: Sequence[str]) -> list[JobView]:
        """The jobs once they have ended."""
        return [await self.client.wait(job_id, PATIENCE_SECONDS) for job_id in ids]

    async def all_kept(self, ids: Sequence[str], promise_seconds: float = PROMISE_SECONDS) -> None:
        """Each job was completed, and started within the promise."""
        views = await self.views(ids)
        assert [view for view in views if view.state is not State.COMPLETED] == []
        waited = [
            (view.record.started_at - view.record.dispatched_at).total_seconds()
            for view in views
            if view.record.started_at
        ]
        assert len(waited) == len(ids)
        assert max(waited) <= promise_seconds, sorted(waited)[-10:]
        assert {view.record.lost_workers for view in views} == {0}


@asynccontextmanager
async def two_hosts(settings: MakeSettings, folder: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        hosts, folders = [], []
        for name in ("a", "b"):
            place = Path(settings().host.run_dir).parent / name
            place.mkdir(mode=0o700)
            code = folder / name
            code.mkdir()
            (code / "deployed_jobs.py").write_text(OLD)
            own = settings(
                pools={QUEUE: {"sla_seconds": PROMISE_SECONDS}},
                jobs={"modules": ["deployed_jobs"], "unknown_after_seconds": PATIENCE_SECONDS},
                host={"name": name, "run_dir": str(place / "run"), "drain_seconds": 20.0},
                spark={"remote": "sc://127.0.0.1:1"},
                streams={"events_max_bytes": 200_000_000},  # no orchestrator shortens it
            )
            bus = await connect(own)
            stack.push_async_callback(bus.close)
            host = Stage(own, bus)
            stack.push_async_callback(host.close)
            path = os.pathsep.join((str(code), os.environ.get("PYTHONPATH", "")))
            host.start({"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"})
            await host.command({QUEUE: 2})
            hosts.append(host)
            folders.append(code)
        for host in hosts:
            await host.pool(QUEUE, ready=2)
        yield Site(bus, hosts, folders)


LOADS = [
    pytest.param(Load(30, 2.0), id="30 a second"),
    pytest.param(Load(500, 10.0), id="500 a second", marks=pytest.mark.long),
]


@pytest.mark.parametrize("load", LOADS)
async def test_workers_first(settings: MakeSettings, tmp_path: Path, load: Load) -> None:
    async with two_hosts(settings, tmp_path) as site:
        deploying = asyncio.create_task(site.deploy(0))
        ids = await site.dispatch(OLD_CALLS, load)  # while host a drains
        await deploying
        ids += await site.dispatch((*OLD_CALLS, *NEW_CALLS), load)  # clients of both versions
        await site.all_kept(ids)
        deploying = asyncio.create_task(site.deploy(1))
        ids = await site.dispatch((*BOTH_KNOW, *NEW_CALLS), load)  # no client of the old one
        await deploying
        await site.all_kept(ids)


@pytest.mark.parametrize("load", LOADS)
async def test_clients_first(settings: MakeSettings, tmp_path: Path, load: Load) -> None:
    async with two_hosts(settings, tmp_path) as site:
        early = await site.dispatch(NEW_CALLS, load)
        unknown = [id for index, id in enumerate(early) if index % len(NEW_CALLS)]
        await eventually(lambda: _waits(site, unknown[0]), 30)
        await site.deploy(0)
        ids = await site.dispatch(NEW_CALLS, load)
        deploying = asyncio.create_task(site.deploy(1))
        ids += await site.dispatch(NEW_CALLS, load)
        await deploying
        await site.all_kept(ids)
        # no worker knew these when they were dispatched; none of them is dead
        await site.all_kept(early, promise_seconds=PATIENCE_SECONDS)


async def _waits(site: Site, job_id: str) -> bool:
    """A worker put it off: its message is a schedule of the broker."""
    subjects = site.hosts[0].subjects
    subject = subjects.schedule(QUEUE, job_id)
    return await site.bus.last(subjects.jobs_stream, subject) is not None
