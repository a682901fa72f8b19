"""Measurements of pools, hosts and queues over time: taken from snapshots, kept in the database."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

import apsw

from penstock.console.core.series import (
    TIERS,
    Points,
    Series,
    first_in_memory,
    oldest_kept,
    wanted,
)
from penstock.console.read_models.databases import Databases
from penstock.console.read_models.projection import Projection
from penstock.console.read_models.store import Snapshot
from penstock.events.envelope import Event
from penstock.events.scaling import ScalingDecisionMade
from penstock.events.snapshot import HostSnapshot, PoolSnapshot
from penstock.runtime.service import Service

log = logging.getLogger("penstock.console")

_SAVE_SECONDS = 15.0
_MOST_LATE_SECONDS = 3_600.0
"""Of what comes later the hour has left the memory."""
_MOST_EARLY_SECONDS = 300.0
"""Of a clock that is ahead."""


class Measurements:
    """Series of all pools, hosts and queues.

    Args:
        databases: where they are kept.

    Attributes:
        keeps_seconds: whether points of one second are kept; else coarser ones alone.
    """

    def __init__(self, databases: Databases) -> None:
        self._databases = databases
        self._series = Series()
        self._series.restore(databases.current.read_series(first_in_memory(time.time())))
        self.keeps_seconds = True

    def take(self, event: Event) -> None:
        """Takes a snapshot of a pool or host, or a decision; others change nothing."""
        at = event.at.timestamp()
        match event:
            case PoolSnapshot():
                self._add("pool", event.pool, at, _of_pool(event))
                for queue, rate in event.ended_by_queue.items():
                    values = (rate.finished_per_minute, rate.failed_per_minute)
                    self._add("queue", queue, at, values)
            case ScalingDecisionMade():
                decided = (event.predicted_pickup_seconds, None, event.target)
                self._add("pool", event.pool, at, (None, None, None, *decided, None, None, None))
            case HostSnapshot():
                ready = sum(pool.ready for pool in event.pools.values())
                started = sum(pool.started for pool in event.pools.values())
                used = (event.cpu_busy_cores, event.memory_used_bytes, ready, started)
                self._add("host", event.host, at, used)

    def stored_points(
        self, rows: Snapshot, kind: str, name: str, seconds: float, until: float | None = None
    ) -> Points:
        """So many seconds of one pool, host or queue, as a query of the database.

        Args:
            rows: the database.
            kind: ``pool``, ``host`` or ``queue``.
            name: of the thing.
            seconds: how far back it reaches.
            until: where it ends, in seconds since 1970; None for now.
        """
        now = time.time()
        end, first = now if until is None else until, first_in_memory(now)
        chunks = wanted(kind, name, end - seconds, end, now)
        stored = rows.series(key for key in chunks if key.hour < first)
        return self._series.points(kind, name, end - seconds, end, stored, now)

    def recent_points(self, kind: str, name: str, seconds: float) -> Points:
        """The same of the last hour at most, from memory."""
        now = time.time()
        return self._series.points(kind, name, now - seconds, now)

    async def run(self, service: Service, projection: Projection) -> None:
        """Stores what has changed, until the service stops."""
        while await service.pause(_SAVE_SECONDS):
            now = time.time()
            changed = self._series.take_changed()
            try:
                await projection.in_writer(self._databases.store_series, changed, oldest_kept(now))
            except apsw.Error as error:
                log.warning("measurements are not stored, charts begin anew: %s", error)
            self._series.let_go(now)

    def _add(self, kind: str, name: str, at: float, values: Sequence[float | None]) -> None:
        if -_MOST_EARLY_SECONDS < time.time() - at < _MOST_LATE_SECONDS:
            tiers = TIERS if self.keeps_seconds else TIERS[1:]
            self._series.add(kind, name, at, values, tiers)


def _of_pool(snapshot: PoolSnapshot) -> tuple[float | None, ...]:
    return (
        snapshot.waiting,
        snapshot.oldest_waiting_seconds,
        snapshot.pickup.p99_seconds if snapshot.pickup else None,
        None,  # of decisions
        snapshot.workers_ready,
        None,
        snapshot.running,
        snapshot.arrival_per_second,
        1.0 - snapshot.budget.remaining_share if snapshot.budget else None,
    )
