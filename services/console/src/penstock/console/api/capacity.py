"""Hosts and workers, and whether there are enough of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from penstock.console.api.endpoint import (
    AsOfText,
    Listing,
    Routes,
    SeriesSeconds,
    read,
    whole,
)
from penstock.console.core.series import Points
from penstock.console.parts import Console
from penstock.console.past.past import View
from penstock.console.web.access import ChangesWith
from penstock.events.catalogue import LOGGED
from penstock.events.scaling import HostCountAdvised
from penstock.events.snapshot import HostSnapshot
from penstock.jobs.event_store import event_log
from penstock.views.live_workers import WorkerRow
from penstock.views.pool_board import HostRow


class HostAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One host; ``snapshot`` is what it reported last."""

    host: HostRow
    snapshot: HostSnapshot
    workers: list[WorkerRow]


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """All hosts together; of those that take workers, cores and memory are added up.

    Attributes:
        missing: by pool, workers that were decided and are not started.
    """

    hosts: int
    hosts_taking_workers: int
    cpu_cores: float
    cpu_busy_cores: float
    memory_bytes: int
    memory_used_bytes: int
    workers_planned: int
    workers_started: int
    workers_ready: int
    missing: Mapping[str, int]


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """How many hosts are needed; None where nothing was advised yet."""

    at: datetime | None
    hosts: int | None
    needed: int | None
    text: str
    short_workers: Mapping[str, int]


def capacity_of(view: View) -> Capacity:
    """All hosts together, now or at a past moment."""
    rows = view.host_rows()
    taking = [row for row in rows if row.state == "ok"]
    pools = view.pool_rows()
    return Capacity(
        hosts=len(rows),
        hosts_taking_workers=len(taking),
        cpu_cores=sum(row.cpu_cores for row in taking),
        cpu_busy_cores=sum(row.cpu_busy_cores for row in taking),
        memory_bytes=sum(row.memory_bytes for row in taking),
        memory_used_bytes=sum(row.memory_used_bytes for row in taking),
        workers_planned=sum(row.planned for row in rows),
        workers_started=sum(row.started for row in rows),
        workers_ready=sum(row.ready for row in rows),
        missing={
            row.pool: row.target - row.started
            for row in pools
            if row.target is not None and row.target > row.started
        },
    )


async def last_advice(console: Console) -> Advice:
    """Raises BusError."""
    subjects = console.subjects
    subject = subjects.events(HostCountAdvised.noun, "*", HostCountAdvised.__name__)
    stored = await console.bus.last(subjects.events_stream, subject)
    event = event_log.read_event(stored, LOGGED) if stored else None
    if not isinstance(event, HostCountAdvised):
        nothing = "no other number of hosts was advised"
        return Advice(at=None, hosts=None, needed=None, text=nothing, short_workers={})
    return Advice(
        at=event.at,
        hosts=event.hosts,
        needed=event.needed,
        text=event.text,
        short_workers=event.short_workers,
    )


def routes(console: Console) -> Routes:
    """The endpoints of this group."""

    @read("/workers")
    async def workers() -> Listing[WorkerRow]:
        """Workers that reported within the last ten seconds, by pool and name."""
        return whole(console, console.present.worker_rows())

    @read("/workers/{name:str}")
    async def worker(name: FromPath[str]) -> WorkerRow:
        """One worker, as it reported itself."""
        row = next((row for row in console.present.worker_rows() if row.worker == name), None)
        if row is None:
            raise NotFoundException(f"worker {name!r} has not reported for ten seconds")
        return row

    @read("/hosts", answers_as_of=True)
    async def hosts(as_of: AsOfText = "") -> Listing[HostRow]:
        """Hosts, also lost ones, by name."""
        past = await console.past(as_of)
        return whole(console, (past or console.present).host_rows(), past)

    @read("/hosts/{name:str}", answers_as_of=True)
    async def host(name: FromPath[str], as_of: AsOfText = "") -> HostAnswer:
        """One host, what it reported last, and its workers."""
        view = await console.past(as_of) or console.present
        row = next((row for row in view.host_rows() if row.host == name), None)
        if row is None:
            raise NotFoundException(f"there is no host {name!r}")
        workers = [one for one in view.worker_rows() if one.host == name]
        snapshot = view.board.hosts[name]
        return HostAnswer(host=row, snapshot=snapshot, workers=workers)

    @read("/hosts/{name:str}/series")
    async def host_series(name: FromPath[str], seconds: SeriesSeconds = 900) -> Points:
        """Busy cores, memory and workers over time."""
        points = await console.points("host", name, seconds)
        if not points.at and name not in console.present.board.hosts:
            raise NotFoundException(f"there is no host {name!r}")
        return points

    @read("/capacity", source=ChangesWith.PRESENT, answers_as_of=True)
    async def capacity(as_of: AsOfText = "") -> Capacity:
        """All hosts together, and the workers that are missing."""
        return capacity_of(await console.past(as_of) or console.present)

    @read("/advice", source=ChangesWith.LOG)
    async def advice() -> Advice:
        """How many hosts are needed."""
        return await last_advice(console)

    return workers, worker, hosts, host, host_series, capacity, advice
