"""`[host]`, `[hosts]`, `[stuck]`, `[health]`: hosts, jobs without progress, disks that fill."""

from __future__ import annotations

import re
import socket
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from penstock.config.section import Count, Name, NonNegative, Positive, Section, Share


def _host_name(raw_name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", raw_name.split(".", maxsplit=1)[0])[:64] or "local"


class Host(Section, frozen=True, kw_only=True):
    """The executor's host.

    Attributes:
        name: unique among hosts.
        run_dir: sockets and records of living workers; empty means a folder of this host's name
            below the user's runtime folder.
        reserve_cpu_cores: cores that are never given to workers.
        reserve_memory_bytes: memory that is never given to workers.
        max_cpu_share: share of the cores that no plan exceeds, whatever uses them.
        count_other_cpu: cores that other programs use are not given to workers. Without it workers
            are placed by ``cpu_cores`` of their pools alone, as pods by what they request: for
            workers that mostly wait, on a machine that is shared on purpose. Memory always counts.
        max_memory_share: share of the memory that no plan exceeds, whatever uses it.
        max_workers: ceiling over all pools; 0 for none.
        drain_seconds: how long a busy worker may finish before it is killed.
        orphan_grace_seconds: workers end this long after their executor vanished.
        lease_seconds: a host silent this long is lost; its share moves to others.
        max_parallel_starts: how many workers may be starting at a time; 0 is twice the cores. Of
            Spark Workers, whose Java keeps a core busy, never more than there are cores.
    """

    of_process = ("name", "run_dir", "orphan_grace_seconds")
    of_machine = ("name", "run_dir", "count_other_cpu", "max_workers", "max_parallel_starts")

    name: Name = msgspec.field(default_factory=lambda: _host_name(socket.gethostname()))
    run_dir: str = ""
    reserve_cpu_cores: NonNegative = 0.5
    reserve_memory_bytes: Annotated[int, Meta(ge=0)] = 256 * 1024 * 1024
    max_cpu_share: Annotated[float, Meta(gt=0, le=1)] = 0.9
    count_other_cpu: bool = True
    max_memory_share: Annotated[float, Meta(gt=0, le=1)] = 0.85
    max_workers: Count = 0
    drain_seconds: NonNegative = 30.0
    orphan_grace_seconds: Positive = 10.0
    lease_seconds: Positive = 6.0
    max_parallel_starts: Count = 0


class Hosts(Section, frozen=True, kw_only=True):
    """The hosts that the decider and the metrics service accept.

    Attributes:
        allowed: glob patterns of host names; snapshots of other hosts are ignored. Empty: any host.
        most: hosts that are remembered at a time; snapshots of further ones are refused and logged.
    """

    allowed: tuple[str, ...] = ()
    most: Annotated[int, Meta(ge=1, le=100_000)] = 1000


class Health(Section, frozen=True, kw_only=True):
    """When `penstock health` and the orchestrator report a disk.

    Attributes:
        disk_warning_share: share of a disk in use from which it is a warning.
        disk_critical_share: share from which it is unhealthy.
    """

    disk_warning_share: Share = 0.8
    disk_critical_share: Share = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.disk_warning_share > self.disk_critical_share:
            raise ValueError("disk_warning_share exceeds disk_critical_share")


class Stuck(Section, frozen=True, kw_only=True):
    """Jobs that make no progress though their worker lives; see docs/jobs.md.

    Attributes:
        strategy: what becomes of one: ``graceful`` (asked to stop; goes on elsewhere from its last
            checkpoint), ``checkpoint`` (its worker is killed; likewise), ``restart`` (its worker is
            killed; it begins anew) or ``off`` (nothing; it is only reported).
        silent_seconds: without a sign of life for so long, the part of the score for it is full.
        expected_seconds: how long a job may run where too few like it were seen.
        longer: the part for the run time is full at so many times what is expected.
        memory_growth: the part for memory is full at so many times what it began with.
        threshold: a job is stuck whose score is above this.
        looks: how many samples above the threshold it takes.
        within_seconds: these samples lie within so many seconds.
    """

    strategy: Literal["graceful", "restart", "checkpoint", "off"] = "graceful"
    silent_seconds: Positive = 300.0
    expected_seconds: Positive = 300.0
    longer: Annotated[float, Meta(gt=1, le=1000)] = 3.0
    memory_growth: Annotated[float, Meta(gt=1.1, le=1000)] = 2.0
    threshold: Annotated[float, Meta(gt=0, le=1)] = 0.7
    looks: Annotated[int, Meta(ge=1, le=100)] = 3
    within_seconds: Positive = 10.0
