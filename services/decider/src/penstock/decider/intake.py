"""The newest snapshot of each pool and host, as they come in."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, get_type_hints

import msgspec

from penstock.bus.protocol import Bus, BusError, Headers, Stored
from penstock.config import Pool, Settings
from penstock.config.topology import is_excluded
from penstock.decider.core.inputs import MeasuredHost, MeasuredPool, Rules, take_host
from penstock.decider.decoding import read, skip
from penstock.decider.rhythm import Rhythm
from penstock.events.envelope import Event
from penstock.events.snapshot import MEASURED, HostSnapshot, PoolSnapshot, SourceUnread
from penstock.events.subjects import Subjects
from penstock.measuring.hosts import implausible
from penstock.runtime.poison_messages import skipping_poison

log = logging.getLogger("penstock.decider")

_COMPLAINT_SECONDS = 60.0
_SPARE_HEADERS = 100
_AT_A_TIME = 1024
"""Snapshots: some 15 ms. Each pull waits for the slice of pools that is being decided, so that an
urgent pool's snapshot behind 10,000 others would wait for forty slices by pulls of 256."""


class Intake:
    """Keeps the newest snapshots, and requests a decision when one is due at once.

    Attributes:
        pools: the newest snapshot of each, by name.
        hosts: likewise.
        headers: of the same messages, by snapshot id (trace contexts).
        changed: set when the rhythm may have changed.
        through: sequence of the last message that was taken, usable or not.
    """

    def __init__(
        self,
        settings: Settings,
        pools: Mapping[str, Pool],
        rhythm: Rhythm,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.pools: dict[str, MeasuredPool] = {}
        self.hosts: dict[str, MeasuredHost] = {}
        self.headers: dict[str, Headers] = {}
        self.changed = asyncio.Event()
        self._settings, self._configured, self._rhythm = settings, pools, rhythm
        self._rules = Rules.of(settings)
        self._refused_at = float("-inf")
        self._monotonic = monotonic
        self._reported: set[str] = set()
        self.through = 0
        self._first_through: int | None = None

    async def follow(self, bus: Bus, subjects: Subjects) -> None:
        """Runs without end."""
        patterns = [subjects.pool_snapshot("*"), subjects.host_snapshot("*")]
        stream = subjects.snapshots_stream
        async for stored in bus.follow(stream, patterns, start="last", most=_AT_A_TIME):
            if self._first_through is None:
                self._first_through = await _end(bus, stream, subjects.snapshots)
            with skipping_poison(f"{stored.subject}, message {stored.sequence}"):
                self.take(stored)

    @property
    def complete(self) -> bool:
        """No snapshot was left out: the newest of each subject came first, then every later one."""
        return self._first_through is not None and self.through >= self._first_through

    def take(self, stored: Stored) -> None:
        """One message; a malformed one is logged with its reason and skipped."""
        self.through = stored.sequence
        snapshot = read(MEASURED, stored)
        if snapshot is None or isinstance(snapshot, SourceUnread):  # which has no figures
            return
        if fault := wrong(snapshot, stored.subject):
            skip(stored, fault)
        elif isinstance(snapshot, PoolSnapshot):
            self._take_pool(snapshot, stored)
        elif isinstance(snapshot, HostSnapshot):
            self._take_host(snapshot, stored)

    def _take_pool(self, snapshot: PoolSnapshot, stored: Stored) -> None:
        name = snapshot.pool
        if name not in self._configured:
            self._report_stranger(snapshot)
            return
        self._forget(self.pools.get(name))
        self.pools[name] = MeasuredPool(snapshot, stored.at.timestamp())
        self._keep(snapshot, stored)
        # a first job or a growing backlog: its pool is decided at once
        if snapshot.wakeup != "tick":
            self._rhythm.request(name, self._monotonic())
        else:
            self._rhythm.follow(self._monotonic())
        self.changed.set()

    def _take_host(self, snapshot: HostSnapshot, stored: Stored) -> None:
        before = self.hosts.get(snapshot.host)
        measurement = MeasuredHost(snapshot, stored.at.timestamp())
        if reason := take_host(self.hosts, measurement, self._rules):
            self._report_refused(snapshot.host, reason)
            return
        self._forget(before)
        self._keep(snapshot, stored)
        self._sweep()
        lease = self._settings.host.lease_seconds
        # a host that comes, or starts to drain, concerns all pools
        came = before is None or stored.at.timestamp() - before.at > lease
        if came or (before and before.snapshot.draining != snapshot.draining):
            self._rhythm.request_all(self._monotonic())
            self.changed.set()

    def _keep(self, snapshot: Event, stored: Stored) -> None:
        if stored.headers:
            self.headers[snapshot.id] = stored.headers

    def _forget(self, measurement: MeasuredPool | MeasuredHost | None) -> None:
        if measurement is not None:
            self.headers.pop(measurement.snapshot.id, None)

    def _sweep(self) -> None:
        """Headers of hosts that are not remembered any more."""
        if len(self.headers) <= 2 * (len(self.hosts) + len(self.pools)) + _SPARE_HEADERS:
            return
        kept = {measurement.snapshot.id for measurement in self.hosts.values()}
        kept |= {measurement.snapshot.id for measurement in self.pools.values()}
        self.headers = {id_: headers for id_, headers in self.headers.items() if id_ in kept}

    def _report_refused(self, host: str, reason: str) -> None:
        """Logs a refused host once a minute: an attacker that invents hosts invents many."""
        now = self._monotonic()
        if now - self._refused_at >= _COMPLAINT_SECONDS:
            self._refused_at = now
            log.warning("host %s is refused: %s", host, reason)

    def _report_stranger(self, snapshot: PoolSnapshot) -> None:
        """Logs an unknown pool once per name."""
        if snapshot.pool in self._reported:
            return
        self._reported.add(snapshot.pool)
        if all(is_excluded(self._settings, queue) for queue in snapshot.queues):
            log.info("queue %s is excluded: it is left alone", ", ".join(snapshot.queues))
        else:
            log.warning(
                "pool %s is measured but not configured here: it is left alone; "
                "add [pools.%s] to scale it",
                snapshot.pool,
                snapshot.pool,
            )


async def _end(bus: Bus, stream: str, pattern: str) -> int | None:
    try:
        last = await bus.last(stream, pattern)
    except BusError:  # retried with the next message
        return None
    return last.sequence if last else 0


def wrong(snapshot: Event, subject: str) -> str | None:
    """A fault beyond the types: another pool's or host's snapshot, or a count below zero."""
    if subject.rpartition(".")[2] != snapshot.key:
        return f"found a snapshot of {snapshot.key!r}, expected the subject's"
    if isinstance(snapshot, HostSnapshot) and (fault := implausible(snapshot)):
        return fault
    names, values = _numbers(type(snapshot))
    for value in values(snapshot):
        if value is not None and value < 0:
            name = names[values(snapshot).index(value)]
            return f"found {name} = {value}, expected 0 or more"
    return None


@cache
def _numbers(kind: type[Event]) -> tuple[list[str], Callable[[Event], tuple[Any, ...]]]:
    """The fields that count something, and how to get at all of them."""
    numbers = (int, float, int | None, float | None)
    kinds = get_type_hints(kind)  # without their bounds
    names = [f.name for f in msgspec.structs.fields(kind) if kinds[f.name] in numbers]
    return names, attrgetter(*names)
