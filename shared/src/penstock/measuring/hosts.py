"""The newest entry of each host, bounded in number and time; what a host may claim to be. Pure.

A holder of an executor's key can invent host names. The decider and the metrics service keep
their hosts by these rules, and so does a replay, which must remember the same hosts as the decider.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Protocol, TypeVar

import msgspec

from penstock.events.snapshot import HostSnapshot

FORGET_LEASES = 10.0
"""A host that was silent for so many leases is forgotten; after one its workers were moved."""
MOST_CPU_CORES = 8192.0
MOST_MEMORY_BYTES = 2**48
"""256 TiB, eight times the largest machine that is sold."""
_MOST_POOLS, _MOST_NAMES = 1000, 10_000
"""Limits of one host: an executor obeys no plan with more workers of a pool."""


class Dated(Protocol):
    """An entry with the time at which the broker stored it."""

    @property
    def at(self) -> float:
        """POSIX seconds."""
        ...


T = TypeVar("T", bound=Dated)


class HostBounds(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the remembered hosts; see `penstock.config.hosts.Hosts`."""

    allowed: tuple[str, ...] = ()
    most: int = 1000
    lease_seconds: float = 6.0


def remember(hosts: dict[str, T], name: str, entry: T, bounds: HostBounds) -> str:
    """Takes in the newest entry of a host, and forgets hosts that were silent for long.

    Entries must come in the order in which the broker stored them: ``hosts`` stays sorted by when
    the last snapshot of each came, so that this costs the same however many there are.

    Returns:
        Why the host was refused; empty when it was taken.
    """
    # inserted again at the end, so that the first host is always the one silent the longest
    before = hosts.pop(name, None)
    _forget(hosts, entry.at, bounds)
    if before is None:
        if bounds.allowed and not any(fnmatchcase(name, pattern) for pattern in bounds.allowed):
            return "hosts.allowed does not name it"
        if len(hosts) >= bounds.most and not _evict(hosts, entry.at, bounds.lease_seconds):
            return f"{len(hosts)} hosts are known already, as many as hosts.most allows"
    hosts[name] = entry
    return ""


def _forget(hosts: dict[str, T], now: float, bounds: HostBounds) -> None:
    patience = FORGET_LEASES * bounds.lease_seconds
    while hosts:
        name = next(iter(hosts))
        if now - hosts[name].at <= patience:
            return
        del hosts[name]


def _evict(hosts: dict[str, T], now: float, lease_seconds: float) -> bool:
    """Removes the host that was silent the longest, if it is lost."""
    name = next(iter(hosts))
    if now - hosts[name].at <= lease_seconds:
        return False
    del hosts[name]
    return True


def implausible(snapshot: HostSnapshot) -> str:
    """A size that no machine has; empty for a plausible snapshot."""
    sizes = {
        "cpu_cores": (snapshot.cpu_cores, MOST_CPU_CORES),
        "memory_bytes": (snapshot.memory_bytes, MOST_MEMORY_BYTES),
        "pools": (len(snapshot.pools), _MOST_POOLS),
    }
    for pool, workers in snapshot.pools.items():
        sizes[f"pools.{pool}.names"] = (len(workers.names), _MOST_NAMES)
    for field, (value, most) in sizes.items():
        if not value <= most:  # also what is no number
            return f"found {field} = {value:g}, expected at most {most:g}"
    return ""
