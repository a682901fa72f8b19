"""Which workers there are, by their hosts' snapshots, and what their reports may say.

A report comes from a worker, thus from whatever runs in it. It counts when the executor of that
host names the worker, and within what the host's size and a second's work allow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import isfinite

import msgspec

from penstock.events.snapshot import HostSnapshot
from penstock.events.worker import Claim, QueueReport, WorkerReport
from penstock.measuring.hosts import MOST_CPU_CORES, HostBounds, implausible, remember

MOST_SECONDS = 366 * 86_400.0
"""No job waits or runs longer than a year."""
MOST_JOBS = 1_000_000
"""Of one queue in one report, which covers a second; the fastest worker does some 10,000."""
MOST_SLOTS = 1024
"""As `pools.NAME.slots` allows."""
_MOST_CLAIMS = 1000
_PARTS = (("late", "started"), ("redelivered", "started"), ("failed", "finished"))
"""Counts of a queue, each with the one that includes it."""
_STATES = frozenset({"starting", "idle", "busy", "draining"})
_ASIDE_HOSTS, _ASIDE_REPORTS = 64, 64
_ASIDE_SECONDS = 3.0
"""An executor names a worker within a second of its start; the worker may report earlier."""


class Unbelievable(ValueError):
    """A report or snapshot that cannot be true: says what was found and what was expected."""


class KnownHost(msgspec.Struct, frozen=True):
    """A host by its last snapshot, stored ``at`` (POSIX seconds); ``pools``: by worker."""

    at: float
    cpu_cores: float
    memory_bytes: int
    pools: dict[str, str]


class Roster:
    """The hosts and the workers that their executors name. Bounded, whatever is sent."""

    def __init__(self, bounds: HostBounds) -> None:
        self._bounds = bounds
        self._hosts: dict[str, KnownHost] = {}
        self._aside: dict[str, deque[tuple[WorkerReport, float]]] = {}

    def see(self, snapshot: HostSnapshot, at: float, now: float) -> Iterator[WorkerReport]:
        """Takes in a host's snapshot; yields reports that came before it and count now.

        Args:
            at: when the broker stored it, POSIX seconds.
            now: of the steady clock.

        Raises:
            Unbelievable: it is not taken.
        """
        if reason := implausible(snapshot):
            raise Unbelievable(reason)
        pools = {name: pool for pool, workers in snapshot.pools.items() for name in workers.names}
        host = KnownHost(at, snapshot.cpu_cores, snapshot.memory_bytes, pools)
        if reason := remember(self._hosts, snapshot.host, host, self._bounds):
            raise Unbelievable(reason)
        return self._released(snapshot.host, host, now)

    def admit(self, report: WorkerReport, now: float) -> WorkerReport | None:
        """The report as far as it is believed; None for one that is kept aside for a moment.

        Raises:
            Unbelievable: it is not taken.
        """
        check(report)
        host = self._hosts.get(report.host)
        if host is None or host.pools.get(report.worker) != report.pool:
            self._put_aside(report, now)
            return None
        return believed(report, host)

    @property
    def largest(self) -> tuple[float, int] | None:
        """Cores and bytes of the largest hosts; None while none is known."""
        hosts = self._hosts.values()
        if not hosts:
            return None
        return max(host.cpu_cores for host in hosts), max(host.memory_bytes for host in hosts)

    def _put_aside(self, report: WorkerReport, now: float) -> None:
        reports = self._aside.get(report.host)
        if reports is None:
            # The oldest gives way: a key that invents hosts cannot keep out real ones for long.
            if len(self._aside) >= _ASIDE_HOSTS:
                del self._aside[next(iter(self._aside))]
            reports = self._aside[report.host] = deque(maxlen=_ASIDE_REPORTS)
        reports.append((report, now))

    def _released(self, name: str, host: KnownHost, now: float) -> Iterator[WorkerReport]:
        waiting: deque[tuple[WorkerReport, float]] = deque(maxlen=_ASIDE_REPORTS)
        for report, reported_at in self._aside.pop(name, ()):
            if now - reported_at > _ASIDE_SECONDS:
                continue
            if host.pools.get(report.worker) == report.pool:
                yield believed(report, host)
            else:
                waiting.append((report, reported_at))
        if waiting:
            self._aside[name] = waiting


def believed(report: WorkerReport, host: KnownHost) -> WorkerReport:
    """A checked report with no more memory than its host has."""
    if report.memory_bytes <= host.memory_bytes:
        return report
    return msgspec.structs.replace(report, memory_bytes=host.memory_bytes)


def check(report: WorkerReport) -> None:
    """Raises Unbelievable: a field is outside of what any worker can say."""
    if report.state not in _STATES:
        raise Unbelievable(f"found state {report.state!r}, expected one of {sorted(_STATES)}")
    _check("number", report.number, 2**53)
    _check("at", report.at, 1e11)
    _check("started_at", report.started_at, 1e11)
    _check("cpu_seconds", report.cpu_seconds, MOST_SECONDS * MOST_CPU_CORES)
    _check("memory_bytes", report.memory_bytes, float("inf"))
    _check("slots", report.slots, MOST_SLOTS)
    _check("slots_used", report.slots_used or 0, MOST_SLOTS)
    _check("held", report.held, MOST_JOBS)
    _check("claims", len(report.claims), _MOST_CLAIMS)
    for claim in report.claims:
        _check_claim(claim)
    for name, done in report.queues.items():
        _check_queue(name, done)


def _check_claim(claim: Claim) -> None:
    _check("running_seconds", max(claim.running_seconds, 0.0), MOST_SECONDS)
    _check("silent_seconds", max(claim.silent_seconds, 0.0), MOST_SECONDS)


def _check_queue(name: str, done: QueueReport) -> None:
    for field in ("started", "late", "finished", "failed", "redelivered"):
        _check(f"queues.{name[:64]}.{field}", getattr(done, field), MOST_JOBS)
    for part, whole in _PARTS:
        _check(f"queues.{name[:64]}.{part}", getattr(done, part), getattr(done, whole))
    _check(f"queues.{name[:64]}.slowest_seconds", max(done.slowest_seconds, 0.0), MOST_SECONDS)


def _check(field: str, value: float, most: float) -> None:
    if not (0 <= value <= most) or (isinstance(value, float) and not isfinite(value)):
        raise Unbelievable(f"found {field} = {value:g}, expected 0 to {most:g}")
