"""The host in numbers: three sets of workers by pool, what became of them, how long they took."""

from __future__ import annotations

from typing import Any

from penstock.events.snapshot import HostSnapshot, PoolWorkers
from penstock.events.worker import WorkerReady, WorkerStopped
from penstock.executor.gauges import Readings
from penstock.telemetry.meters import Meters, Reading, Spread


def told(meters: Meters) -> dict[tuple[str, ...], Any]:
    return {(each.metric.name, *each.labels): each for each in meters.samples()}


def test_nothing_is_told_before_the_broker_has_a_snapshot() -> None:
    meters = Meters()
    Readings(meters)
    assert meters.samples() == []


def test_workers_by_pool_and_state() -> None:
    meters = Meters()
    readings = Readings(meters)
    mails = PoolWorkers(planned=3, started=2, ready=1, crash_loop=True)
    readings.published(
        HostSnapshot(source="x", host="a", cpu_cores=2, memory_bytes=8, pools={"mails": mails})
    )
    found = told(meters)
    assert found["penstock.host.workers", "a", "mails", "planned"].value == 3
    assert found["penstock.host.workers", "a", "mails", "ready"].value == 1
    assert found["penstock.host.crash_loop", "a", "mails"].value == 1
    readings.published(HostSnapshot(source="x", host="a", cpu_cores=2, memory_bytes=8))
    assert ("penstock.host.crash_loop", "a", "mails") not in told(meters), "a pool that is gone"


def test_events_are_counted_with_their_cause() -> None:
    meters = Meters()
    readings = Readings(meters)
    who: dict[str, Any] = {"source": "x", "worker": "w", "host": "a", "pool": "mails", "pid": 1}
    readings.happened(WorkerReady(**who, spawn_seconds=0.02))
    for _ in range(2):
        readings.happened(WorkerStopped(**who, cause="crashed"))
    found = told(meters)
    stopped: Reading = found["penstock.workers.events", "a", "mails", "WorkerStopped", "crashed"]
    spawn: Spread = found["penstock.worker.spawn", "mails"]
    assert stopped.value == 2
    assert (sum(spawn.counts), spawn.total) == (1, 0.02)
