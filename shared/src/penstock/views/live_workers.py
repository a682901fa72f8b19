"""The living workers, from the reports that they send while this listens."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec

from penstock.bus import lookback
from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects
from penstock.events.worker import WorkerReport

LISTEN_SECONDS = 2.0
"""Workers report each second: twice that is enough where one report is lost."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as it reported itself.

    Attributes:
        job_id: of the job that it has held longest.
        job_seconds: how long that runs.
        slots: how many jobs it runs at a time.
        slots_used: how many it runs now.
        build: version of its job code.
    """

    worker: str
    pool: str
    host: str
    pid: int
    state: str
    job_id: str = ""
    job_seconds: float | None = None
    lived_seconds: float
    cpu_seconds: float
    memory_bytes: int
    slots: int = 1
    slots_used: int = 0
    build: str = ""


async def living_workers(bus: Bus, settings: Settings) -> tuple[list[WorkerRow], int]:
    """A row for each worker that reports, and the number of started ones that do not."""
    subjects = Subjects(settings.prefix)
    expected = await _started(bus, subjects, settings.host.lease_seconds)
    reports: dict[str, WorkerReport] = {}
    is_complete = asyncio.Event()

    def take(_: str, body: bytes) -> None:
        with suppress(msgspec.DecodeError):
            report = msgspec.json.decode(body, type=WorkerReport)
            reports[report.worker] = report
            if expected and len(reports) >= expected:
                is_complete.set()

    listening = await bus.listen(subjects.worker_report("*", "*"), take)
    with suppress(TimeoutError):
        async with asyncio.timeout(LISTEN_SECONDS):
            await is_complete.wait()
    await listening.unsubscribe()
    living = map(worker_row, reports.values())
    rows = sorted(living, key=lambda row: (row.pool, row.worker))
    return rows, expected - len(rows)


async def _started(bus: Bus, subjects: Subjects, lease_seconds: float) -> int:
    """How many workers the living hosts have started, by their snapshots."""
    now, total = utc_now(), 0
    stream, subject = subjects.snapshots_stream, subjects.host_snapshot("*")
    for stored in await lookback.latest(bus, stream, subject):
        host = SNAPSHOTS.decode(stored.body)
        if isinstance(host, HostSnapshot) and (now - host.at).total_seconds() <= lease_seconds:
            total += sum(pool.started for pool in host.pools.values())
    return total


def worker_row(report: WorkerReport) -> WorkerRow:
    """One report as a row."""
    claim = max(report.claims, key=lambda claim: claim.running_seconds, default=None)
    return WorkerRow(
        worker=report.worker,
        pool=report.pool,
        host=report.host,
        pid=report.pid,
        state=report.state,
        job_id=claim.job_id if claim else "",
        job_seconds=claim.running_seconds if claim else None,
        lived_seconds=max(0.0, time.time() - report.started_at),
        cpu_seconds=report.cpu_seconds,
        memory_bytes=report.memory_bytes,
        slots=report.slots,
        build=report.build,
        slots_used=len(report.claims) if report.slots_used is None else report.slots_used,
    )
