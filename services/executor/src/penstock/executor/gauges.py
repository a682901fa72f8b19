"""The host and its workers as the numbers that are scraped."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.events.snapshot import HostSnapshot
from penstock.events.worker import WorkerEvent, WorkerReady
from penstock.telemetry import metrics, snapshot_readings
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
        return snapshot_readings.of_host(self._last) if self._last else ()
