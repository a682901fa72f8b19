"""Reports of workers are measured, and no forged one stops that."""

from __future__ import annotations

import random
from typing import Any

import msgspec
from tests.waiting import eventually

from penstock.config.load import check
from penstock.config.topology import pools
from penstock.events.snapshot import HostSnapshot, PoolWorkers
from penstock.events.worker import QueueReport, WorkerReport
from penstock.measuring.hosts import HostBounds
from penstock.metrics.core.pool import PoolMeter
from penstock.metrics.core.queue import Queue
from penstock.metrics.core.roster import Roster
from penstock.metrics.core.sketches import serialized
from penstock.metrics.listeners import WorkerListener
from penstock.testing.memory.bus import MemoryBus

SETTINGS = check({"pools": {"mails": {}}})
RUN_TIMES = [random.Random(5).random() for _ in range(1000)]


def report(number: int, **changes: Any) -> bytes:
    usual: dict[str, Any] = {"worker": "w1", "host": "a", "pool": "mails", "pid": 7}
    usual |= {"state": "idle", "number": number, "at": 2.0, "started_at": 1.0}
    return msgspec.json.encode(WorkerReport(**{**usual, **changes}))


def with_sketch(number: int, sketch: bytes) -> bytes:
    done = QueueReport(
        finished=1000,
        service_sketch=sketch,
        service_sum_seconds=sum(RUN_TIMES),
        service_sum_squares=sum(seconds**2 for seconds in RUN_TIMES),
    )
    return report(number, queues={"mails": done})


async def test_a_report_counts_after_each_kind_of_forged_one() -> None:
    bus = MemoryBus(settings=SETTINGS)
    meter = PoolMeter("mails", [Queue("mails")], pools(SETTINGS)["mails"].profile)
    roster = Roster(HostBounds())
    workers = PoolWorkers(planned=1, started=1, ready=1, names=("w1",))
    snapshot = HostSnapshot(host="a", cpu_cores=4.0, memory_bytes=2**33, pools={"mails": workers})
    list(roster.see(snapshot, at=1.0, now=0.0))
    listener = WorkerListener(bus.client(), bus.subjects, {"mails": meter}, roster)
    subscription = await listener.listen()

    sketch = serialized(RUN_TIMES)
    crashing = sketch[:27] + b"\xff" + sketch[28:]  # the library ends the process at it
    trace = "00-" + "1" * 32 + "-" + "1" * 16 + "-01-" + " " * 1_000_000 + "\n"
    forged = [
        b"",
        b"{" * 100_000,
        b"\xff\xfe",
        report(2, held=-5_000_000),
        report(3, slots=-1),
        report(4, state="asleep"),
        with_sketch(5, crashing),
        with_sketch(6, b"rubbish"),
        report(7, queues={"mails": QueueReport(slowest_trace=trace)}),
    ]
    for body in forged:
        await bus.signal(bus.subjects.worker_report("a", "w1"), body)
    await bus.signal(bus.subjects.worker_report("a", "w1"), with_sketch(8, sketch))

    async def measured() -> bool:
        return meter.totals.run.total > 0

    await eventually(measured, 5.0, "the last report counts")
    assert sum(meter.totals.run.counts) == 1000
    assert meter.totals.traced == [None] * len(meter.totals.traced)
    assert meter.workers.held == 0
    await subscription.unsubscribe()
