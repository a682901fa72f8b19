"""The host and its workers as the numbers that are scraped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.events.snapshot import HostSnapshot
from penstock.events.worker import WorkerEvent, WorkerReady
from penstock.telemetry import metrics
from penstock.telemetry.meters import Meters, Reading


class Readings:
    """Of one executor: its last snapshot, and what became of its workers since it began."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        self._last: HostSnapshot | None = None
        meters.read(self)

    def published(self, snapshot: HostSnapshot) -> None:
        """The broker has stored it."""
        self._last = snapshot

    def happened(self, event: WorkerEvent) -> None:
        kind, cause = type(event).__name__, str(getattr(event, "cause", ""))
        self._meters.count(metrics.WORKER_EVENTS, event.host, event.pool, kind, cause)
        if isinstance(event, WorkerReady) and event.spawn_seconds is not None:
            self._meters.observe(metrics.SPAWN, event.spawn_seconds, event.pool)

    def __call__(self) -> Iterable[Reading]:
        return _snapshot(self._last) if self._last else ()


def _snapshot(snapshot: HostSnapshot) -> Iterator[Reading]:
    host = (snapshot.host,)
    yield Reading(metrics.HOST_CORES, snapshot.cpu_cores, host)
    yield Reading(metrics.HOST_BUSY, snapshot.cpu_busy_cores, host)
    yield Reading(metrics.HOST_OWN, snapshot.own_cpu_busy_cores, host)
    yield Reading(metrics.HOST_MEMORY, snapshot.memory_bytes, host)
    yield Reading(metrics.HOST_MEMORY_USED, snapshot.memory_used_bytes, host)
    yield Reading(metrics.HOST_MEMORY_OWN, snapshot.own_memory_bytes, host)
    for pool, workers in snapshot.pools.items():
        where = (snapshot.host, pool)
        for state in ("planned", "started", "ready", "draining"):
            yield Reading(metrics.HOST_WORKERS, getattr(workers, state), (*where, state))
        yield Reading(metrics.CRASH_LOOP, float(workers.crash_loop), where)
