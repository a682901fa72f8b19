"""The workers that live, from their own reports: they are heard, not looked up."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import msgspec

from penstock.bus.protocol import Bus
from penstock.config import Settings
from penstock.events.envelope import utc_now
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects
from penstock.events.worker import WorkerReport
from penstock.views import lookback

LISTEN_SECONDS = 2.0
"""Workers report each second: twice that hears all of them, also where one report is lost."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One worker as it reported itself; ``job_seconds`` is how long its job runs."""

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


async def living_workers(bus: Bus, settings: Settings) -> tuple[list[WorkerRow], int]:
    """A row for each worker heard, and how many the hosts have that were not heard."""
    subjects = Subjects(settings.prefix)
    expected = await _started(bus, subjects, settings.host.lease_seconds)
    heard: dict[str, WorkerReport] = {}
    all_heard = asyncio.Event()

    def hear(_: str, body: bytes) -> None:
        with suppress(msgspec.DecodeError):
            report = msgspec.json.decode(body, type=WorkerReport)
            heard[report.worker] = report
            if expected and len(heard) >= expected:
                all_heard.set()

    listening = await bus.listen(subjects.worker_report("*", "*"), hear)
    with suppress(TimeoutError):
        async with asyncio.timeout(LISTEN_SECONDS):
            await all_heard.wait()
    await listening.unsubscribe()
    rows = sorted((_row(report) for report in heard.values()), key=lambda r: (r.pool, r.worker))
    return rows, expected - len(rows)


async def _started(bus: Bus, subjects: Subjects, lease_seconds: float) -> int:
    """How many workers the living hosts say they have started."""
    now, total = utc_now(), 0
    stream, subject = subjects.snapshots_stream, subjects.host_snapshot("*")
    for stored in await lookback.latest(bus, stream, subject):
        host = SNAPSHOTS.decode(stored.body)
        if isinstance(host, HostSnapshot) and (now - host.at).total_seconds() <= lease_seconds:
            total += sum(pool.started for pool in host.pools.values())
    return total


def _row(report: WorkerReport) -> WorkerRow:
    claim = max(report.claims, key=lambda held: held.running_seconds, default=None)
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
    )
