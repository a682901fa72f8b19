"""Which versions of the job code a pool's live workers have, asked only when a job is unknown."""

from __future__ import annotations

import logging
import time

from penstock.bus import lookback
from penstock.bus.protocol import Bus, BusRefused
from penstock.events.envelope import MalformedEvent
from penstock.events.snapshot import SNAPSHOTS, HostSnapshot
from penstock.events.subjects import Subjects
from penstock.runtime.limited_log import LimitedLog

log = logging.getLogger("penstock.worker")

_KEPT_SECONDS = 1.0
"""Hosts publish a snapshot each second."""
_MOST_BUILDS = 64
"""Of one host; more are of a forged snapshot."""


class LiveBuilds:
    """The builds that hosts report of one pool.

    Hosts publish what their workers report, so that this costs nothing while every job is known.
    Workers that no executor started are in no snapshot.

    Args:
        bus: a connection.
        subjects: of the installation.
        pool: the worker's.
        own: build of the worker.
        lease_seconds: an older snapshot is of a host that is lost.
    """

    def __init__(
        self, bus: Bus, subjects: Subjects, pool: str, own: str, lease_seconds: float = 6.0
    ) -> None:
        self.own = own
        self._bus, self._subjects, self._pool = bus, subjects, pool
        self._lease_seconds = lease_seconds
        self._others: frozenset[str] = frozenset()
        self._read_at = float("-inf")
        self._log = LimitedLog(log)

    async def others(self) -> frozenset[str]:
        """The builds of the pool's live workers that are not this worker's.

        Raises:
            BusError: the broker does not answer.
        """
        if time.monotonic() - self._read_at >= _KEPT_SECONDS:
            try:
                self._others = await self._read()
            except BusRefused as error:  # a key made before workers read snapshots
                self._others = frozenset()
                self._log.write(
                    logging.ERROR, "", "cannot read which versions of the code live: %s", error
                )
            self._read_at = time.monotonic()
        return self._others

    async def _read(self) -> frozenset[str]:
        stream, every_host = self._subjects.snapshots_stream, self._subjects.host_snapshot("*")
        builds: set[str] = set()
        for stored in await lookback.latest(self._bus, stream, every_host):
            try:
                host = SNAPSHOTS.decode(stored.body)
            except MalformedEvent:
                continue
            is_live = self._bus.now() - stored.at.timestamp() <= self._lease_seconds
            if is_live and isinstance(host, HostSnapshot) and self._pool in host.pools:
                builds.update(host.pools[self._pool].builds[:_MOST_BUILDS])
        return frozenset(builds) - {self.own}
