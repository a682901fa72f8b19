"""One seeded run: an installation under load, its faults, and the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from tests.chaos.allowed import needed_by
from tests.chaos.chaos_jobs import VAULT, runs
from tests.chaos.clocks import Clock, Clocks
from tests.chaos.disks import Disk, small_disk
from tests.chaos.faults import befall
from tests.chaos.leftovers import temporary_files_in, traces
from tests.chaos.links import Forwarded, Link, network
from tests.chaos.load import BATCH, BATCH_JOBS, dispatch_all
from tests.chaos.plan import Kind, Plan
from tests.chaos.recovery import RECOVERY_SECONDS
from tests.chaos.site import FORGED, Parts, Site, site
from tests.chaos.storage import LOG_BYTES
from tests.chaos.workflow_load import misled, run_workflows
from tests.histories import (
    Breach,
    Entry,
    Rule,
    broken,
    expired,
    miscounted,
    overlapping,
    unended,
    unread,
    unwitnessed,
    verified,
)
from tests.integration.guarded import GuardedBroker
from tests.waiting import eventually

from penstock.bus.protocol import BusError
from penstock.events.job import JobDispatched
from penstock.jobs.errors import NotFound
from penstock.runtime.broker import Broker
from penstock.runtime.paths import LOOPBACK

T = TypeVar("T")

_DISK_BYTES = 192 * 1024 * 1024
_HOSTS = 2
_START_SECONDS = 180.0
"""Of executors and their warm parents, on a machine that has other work."""
_SETTLED_SECONDS = 60.0
_AGAIN_SECONDS = 0.2
_GONE_SECONDS = 10.0
_MOST_SHOWN = 6
_STORAGE = (Kind.FILL_DISK, Kind.HANG_DISK)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a run.

    Attributes:
        breaches: of the rules; empty when all is well. hung: what never came, else empty.
        left_behind: processes, mounts and files that are there after it.
        fallen: services that ended by themselves.
        unseen: sequences, from and to, that the log discarded before the recorder read them.
        recoveries: faults of the whole installation, and after how many seconds jobs ended again.
    """

    plan: Plan
    breaches: tuple[Breach, ...] = ()
    hung: str = ""
    left_behind: tuple[str, ...] = ()
    fallen: tuple[str, ...] = ()
    unseen: tuple[tuple[int, int], ...] = ()
    jobs: int = 0
    events: int = 0
    recovered: int = 0
    refused: int = 0
    recoveries: tuple[tuple[str, float], ...] = ()
    seconds: float = 0.0

    @property
    def good(self) -> bool:
        return self.word == "good"

    @property
    def word(self) -> str:
        """``good``, ``BAD``, or ``NOT JUDGED``, where what it would be judged by is not whole."""
        if self.unseen:
            return "NOT JUDGED"
        wrong = self.breaches or self.hung or self.left_behind or self.fallen
        return "BAD" if wrong else "good"

    def __str__(self) -> str:
        figures = (
            f"{self.jobs} jobs, {self.events} events, {self.recovered} taken over, "
            f"{self.refused} dispatches refused, {self.seconds:.1f} s{self._slowest()}"
        )
        wrong = [self.hung, *(f"left behind: {name}" for name in self.left_behind)]
        wrong += [f"the recorder did not see {first} to {last}" for first, last in self.unseen]
        wrong += self.fallen[:_MOST_SHOWN]
        wrong += map(str, self.breaches[:_MOST_SHOWN])
        if len(self.breaches) > _MOST_SHOWN:
            wrong.append(f"and {len(self.breaches) - _MOST_SHOWN} more")
        wrong += [] if self.good else [f"again: {self.plan.again}"]
        lines = "".join(f"\n  {line}" for line in wrong if line)
        return f"{self.word}: {self.plan}\n  {figures}{lines}"

    def _slowest(self) -> str:
        if not self.recoveries:
            return ""
        fault, seconds = max(self.recoveries, key=lambda recovery: recovery[1])
        return f"; slowest recovery {seconds:.1f} s of {RECOVERY_SECONDS:g} s, after {fault}"


async def run(plan: Plan, folder: Path) -> Verdict:
    """One run, and what it left behind.

    Args:
        folder: of the run's own.

    Raises:
        NotAllowed: the plan needs something that this machine refuses.
    """
    with temporary_files_in(folder):
        before = traces(folder)
        verdict = await _run(plan, folder)
        left_behind = await _gone(lambda: traces(folder).since(before))
    return msgspec.structs.replace(verdict, left_behind=tuple(left_behind))


async def _gone(look: Callable[[], list[str]]) -> list[str]:
    """What is still there when all has had time to end."""
    with suppress(AssertionError):
        await eventually(lambda: not look(), _GONE_SECONDS)
    return look()


async def _run(plan: Plan, folder: Path) -> Verdict:
    began = time.monotonic()
    async with _installation(plan, folder) as installation:
        hung = ""
        try:
            await installation.staffed(_START_SECONDS)
            await asyncio.gather(
                befall(installation, plan),
                dispatch_all(installation, plan.seed, plan.jobs - BATCH_JOBS),
                run_workflows(
                    installation, plan.seed, plan.workflows, breaks=not plan.has(Kind.FORGE)
                ),
            )
            await _settled(installation)
        except (AssertionError, BusError, NotFound, TimeoutError) as error:
            hung = f"it came to a stop: {error!r}; queues: {await _queues(installation)}"
        breaches: list[Breach] = []
        try:
            breaches = await _patiently(lambda: _breaches(installation))
            breaches += misled(installation, may_be_cancelled=plan.has(Kind.CANCEL))
            if not plan.has(Kind.FORGE):  # else the log holds what breaks the rules
                bus, subjects = installation.bus, installation.subjects
                breaches += await _patiently(lambda: verified(bus, subjects))
        except BusError as error:
            hung = f"{hung}; the broker answers nothing: {error}".removeprefix("; ")
        return Verdict(
            plan=plan,
            breaches=tuple(breaches),
            hung=hung,
            fallen=tuple(installation.fallen),
            unseen=tuple(installation.unseen),
            jobs=len(installation.histories),
            events=sum(map(len, installation.histories.values())),
            recovered=installation.recovered,
            refused=installation.refused,
            recoveries=tuple(installation.recoveries),
            seconds=time.monotonic() - began,
        )


@asynccontextmanager
async def _installation(plan: Plan, folder: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        clocks: list[Clock] = []
        if plan.has(Kind.SHIFT_CLOCK):
            with needed_by(Kind.SHIFT_CLOCK):
                maker = Clocks(folder)
            clocks += [maker.make(f"machine-{number}") for number in range(2 * _HOSTS)]
        disk: Disk | None = None
        if plan.has(*_STORAGE):
            with needed_by(*_STORAGE):
                disk = stack.enter_context(small_disk(_DISK_BYTES))
        net = stack.enter_context(network()) if plan.namespaces else None
        broker = stack.enter_context(_broker(plan, folder, disk, net.address if net else LOOPBACK))
        links: list[Link] = []
        for number in range(_HOSTS):
            if net:
                links.append(net.plug(number, broker.url))
            else:
                wire = Forwarded(broker.url)
                stack.push_async_callback(wire.close)
                await wire.open()
                links.append(wire)
        parts = Parts(broker=broker, links=links, folder=folder, disk=disk, clocks=clocks)
        if plan.has(Kind.TURN_LOG_OVER):
            parts = msgspec.structs.replace(parts, events_max_bytes=LOG_BYTES)
        yield await stack.enter_async_context(site(parts))


@contextmanager
def _broker(plan: Plan, folder: Path, disk: Disk | None, address: str) -> Iterator[Broker]:
    """One that asks for keys, where strangers shall come with them."""
    store = disk.folder / "store" if disk else None
    if plan.has(Kind.FORGE):
        with GuardedBroker(folder, store=store, address=address) as guarded:
            yield guarded
    else:
        with Broker(store, address=address) as broker:
            yield broker


async def _settled(installation: Site) -> None:
    """Until every job has ended, acknowledged or not, nothing waits or is held, all workers run."""

    async def quiet() -> bool:
        if not set(installation.acknowledged) <= installation.ended:
            return False
        try:
            depths = await installation.bus.depths()
            if not await installation.up_to_date():
                return False
        except BusError:
            return False
        histories = installation.histories
        if unended(histories, histories):
            return False
        ours = (depth for queue, depth in depths.items() if not queue.startswith(FORGED))
        return not any(depth.waiting or depth.claimed for depth in ours)

    await eventually(quiet, _SETTLED_SECONDS, "all jobs ended and all queues empty")
    await eventually(lambda: BATCH in installation.batches, _SETTLED_SECONDS, "the batch's end")
    ended = installation.ended
    await eventually(lambda: f"{BATCH}_then" in ended, _SETTLED_SECONDS, "the callback")
    await installation.staffed(RECOVERY_SECONDS)


async def _queues(installation: Site) -> str:
    try:
        depths = await installation.bus.depths()
    except BusError as error:
        return str(error)
    return ", ".join(f"{q} {d.waiting} waiting {d.claimed} claimed" for q, d in depths.items())


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


async def _breaches(installation: Site) -> list[Breach]:
    histories, subjects = installation.histories, installation.subjects
    counts = installation.batches.get(BATCH)
    miscounts = (
        miscounted(histories, {BATCH: (BATCH_JOBS, counts)})
        if counts is not None
        else [Breach(Rule.BATCH, BATCH, "has not ended")]
    )
    stored = await installation.bus.count(subjects.events_stream, subjects.events("job", "*", "*"))
    counted = {
        subject: number
        for subject, number in stored.items()
        if not subject.split(".")[3].startswith(FORGED)
    }
    witnessed = runs(installation.witness)
    plain = [job_id for job_id, story in histories.items() if not _is_workflow(story)]
    in_vault = {job_id for job_id, story in histories.items() if _queue(story) == VAULT}
    return [
        *broken(histories),
        *unended(histories, {*installation.acknowledged, *histories}),
        *(() if installation.turned_over else unread(histories, counted)),
        *unwitnessed(histories, witnessed, plain),
        *expired(histories),
        *overlapping(run for run in witnessed if run.job_id in in_vault),
        *miscounts,
    ]


def _is_workflow(story: list[Entry]) -> bool:
    first = story[0][1]
    return isinstance(first, JobDispatched) and first.kind == "workflow"


def _queue(story: object) -> str:
    first = story[0][1] if isinstance(story, list) and story else None
    return first.queue if isinstance(first, JobDispatched) else ""
