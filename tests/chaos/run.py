"""One seeded run: an installation under load, its faults, and what the oracle says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from tests.chaos.chaos_jobs import VAULT, runs
from tests.chaos.faults import befall
from tests.chaos.links import Disk, Forwarded, Link, network, small_disk
from tests.chaos.load import BATCH, BATCH_JOBS, dispatch_all
from tests.chaos.plan import Kind, Plan
from tests.chaos.site import Site, site
from tests.histories import (
    Breach,
    Histories,
    broken,
    miscounted,
    overlapping,
    read_all,
    unended,
    unread,
    unwitnessed,
)
from tests.waiting import eventually

from penstock.bus.protocol import BusError
from penstock.events.job import JobDispatched
from penstock.runtime.broker import Broker

T = TypeVar("T")

_DISK_BYTES = 192 * 1024 * 1024
_HOSTS = 2
_SETTLED_SECONDS = 60.0
_AGAIN_SECONDS = 0.2
_TOLD = 6


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Attributes: breaches: empty when all is well. hung: what never came, else empty."""

    plan: Plan
    breaches: tuple[Breach, ...] = ()
    hung: str = ""
    jobs: int = 0
    events: int = 0
    recovered: int = 0
    refused: int = 0
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return not (self.breaches or self.hung)

    def __str__(self) -> str:
        figures = (
            f"{self.jobs} jobs, {self.events} events, {self.recovered} taken over, "
            f"{self.refused} dispatches refused, {self.seconds:.1f} s"
        )
        wrong = [self.hung, *map(str, self.breaches[:_TOLD])]
        if len(self.breaches) > _TOLD:
            wrong.append(f"and {len(self.breaches) - _TOLD} more")
        wrong += [] if self.good else [f"again: {self.plan.again}"]
        told = "".join(f"\n  {line}" for line in wrong if line)
        return f"{'good' if self.good else 'BAD'}: {self.plan}\n  {figures}{told}"


async def run(plan: Plan, folder: Path) -> Verdict:
    """Args: folder: of the run's own.

    Raises:
        NotAllowed: the plan needs something that this machine does not let us do.
    """
    began = time.monotonic()
    async with _installation(plan, folder) as found:
        hung = ""
        try:
            await asyncio.gather(
                befall(found, plan), dispatch_all(found, plan.seed, plan.jobs - BATCH_JOBS)
            )
            await _settled(found)
        except (AssertionError, BusError) as error:
            hung = f"it came to a stop: {error!r}"
        histories = await _patiently(lambda: read_all(found.bus, found.subjects))
        breaches = await _patiently(lambda: _breaches(found, histories))
        return Verdict(
            plan=plan,
            breaches=tuple(breaches),
            hung=hung,
            jobs=len(histories),
            events=sum(map(len, histories.values())),
            recovered=found.recovered,
            refused=found.refused,
            seconds=time.monotonic() - began,
        )


@asynccontextmanager
async def _installation(plan: Plan, folder: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        disk: Disk | None = None
        if any(fault.kind is Kind.FILL_DISK for fault in plan.faults):
            disk = stack.enter_context(small_disk(_DISK_BYTES))
        store = disk.folder / "store" if disk else None
        links: list[Link] = []
        if plan.namespaces:
            net = stack.enter_context(network())
            broker = stack.enter_context(Broker(store, address=net.address))
            links += [net.plug(number, broker.url) for number in range(_HOSTS)]
        else:
            broker = stack.enter_context(Broker(store))
            for _ in range(_HOSTS):
                wire = Forwarded(broker.url)
                stack.push_async_callback(wire.close)
                await wire.open()
                links.append(wire)
        yield await stack.enter_async_context(site(broker, links, folder, disk))


async def _settled(found: Site) -> None:
    """Until every job in the log has ended, acknowledged or not, and nothing waits or is held."""

    async def quiet() -> bool:
        if not set(found.acknowledged) <= found.ended:
            return False
        try:
            depths = await found.bus.depths()
            log = await read_all(found.bus, found.subjects)
        except BusError:
            return False
        return not unended(log, log) and not any(d.waiting or d.claimed for d in depths.values())

    await eventually(quiet, _SETTLED_SECONDS, "all jobs ended and all queues empty")
    await found.client.batches.wait(BATCH, _SETTLED_SECONDS)
    await eventually(lambda: f"{BATCH}_then" in found.ended, _SETTLED_SECONDS, "the callback")


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """What the broker answers, on a machine that may be busy."""
    deadline = time.monotonic() + _SETTLED_SECONDS
    while True:
        try:
            return await ask()
        except BusError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_AGAIN_SECONDS)


async def _breaches(found: Site, histories: Histories) -> list[Breach]:
    batch = await found.client.batches.show(BATCH)
    counted = await found.bus.count(
        found.subjects.events_stream, found.subjects.events("job", "*", "*")
    )
    told = runs(found.witness)
    in_vault = {job_id for job_id, story in histories.items() if _queue(story) == VAULT}
    return [
        *broken(histories),
        *unended(histories, {*found.acknowledged, *histories}),
        *unread(histories, counted),
        *unwitnessed(histories, told, histories),
        *overlapping(run for run in told if run.job_id in in_vault),
        *miscounted(histories, {BATCH: (BATCH_JOBS, batch.counts)}),
    ]


def _queue(story: object) -> str:
    first = story[0][1] if isinstance(story, list) and story else None
    return first.queue if isinstance(first, JobDispatched) else ""
