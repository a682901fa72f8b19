"""What was measured about a pool or a host at an instant: the inputs of every decision.

Every measurement carries its age when the snapshot was taken, so that a decision can tell a fresh
zero from a missing value. A value that was never measured is None, never zero.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from penstock.events.envelope import Codec, Event


class Quantiles(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution, summed up: sample count, mean and quantiles, all in seconds."""

    count: int
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float
    cv2: float = 1.0
    """Squared coefficient of variation: variance over squared mean."""


class PoolSnapshot(Event, frozen=True, kw_only=True, tag=True):
    """A pool at an instant; a group's figures are aggregated over its queues.

    Attributes:
        waiting: jobs that could start now. ``delayed``: scheduled or retrying, not yet due.
        running: jobs claimed by workers.
        oldest_waiting_seconds: age of the oldest waiting job; 0 when none waits, None when unknown.
        waiting_ages_seconds: ages at evenly spaced places in the line, from the oldest waiting job
            to the newest; empty where they are not known.
        arrival_per_second: from the growth of the queue's stored sequence; None before two samples.
        arrival_trend: ``up``, ``down`` or ``stable``; forecast is None when there is none.
        service: run-time distribution; pickup: pickup-time distribution; spawn: command to first
            job taken. None before the first sample.
        workers_ready: workers that took or could take a job; workers_idle: of those, without job.
        queue_age_seconds: age of the queue measurements; worker_age_seconds: of the workers' own
            reports (None while none was ever heard).
        wakeup: why the snapshot was taken: ``tick``, ``first-job`` or ``backlog``.
    """

    noun: ClassVar[str] = "pool"
    key_field: ClassVar[str] = "pool"

    pool: str
    queues: tuple[str, ...]
    waiting: int
    delayed: int = 0
    running: int = 0
    oldest_waiting_seconds: float | None = 0.0
    waiting_ages_seconds: tuple[float, ...] = ()
    arrival_per_second: float | None = None
    arrival_trend: str = "stable"
    forecast_per_second: float | None = None
    throughput_per_second: float | None = None
    service: Quantiles | None = None
    pickup: Quantiles | None = None
    spawn: Quantiles | None = None
    workers_ready: int = 0
    workers_idle: int = 0
    worker_cpu_cores: float | None = None
    worker_memory_bytes: int | None = None
    queue_age_seconds: float = 0.0
    worker_age_seconds: float | None = None
    wakeup: str = "tick"


class PoolWorkers(msgspec.Struct, frozen=True, kw_only=True):
    """The three sets of one pool on one host, kept apart."""

    planned: int
    started: int
    ready: int
    draining: int = 0
    crash_loop: bool = False


class HostSnapshot(Event, frozen=True, kw_only=True, tag=True):
    """A host at an instant. Sizes are what its cgroup allows, not what the machine has.

    Attributes:
        cpu_cores: usable cores; memory_bytes: usable memory.
        cpu_busy_cores / memory_used_bytes: used by everything on the host;
        own_cpu_busy_cores / own_memory_bytes: the part used by this executor's workers.
        max_workers: the operator's own ceiling, None for none.
        epoch / version: of the last command this host obeyed.
        pools: workers by pool.
    """

    noun: ClassVar[str] = "host"
    key_field: ClassVar[str] = "host"

    host: str
    cpu_cores: float
    memory_bytes: int
    cpu_busy_cores: float = 0.0
    memory_used_bytes: int = 0
    own_cpu_busy_cores: float = 0.0
    own_memory_bytes: int = 0
    max_workers: int | None = None
    epoch: int = 0
    version: int = 0
    pools: dict[str, PoolWorkers] = {}
    draining: bool = False
    """The executor is ending: it takes no new workers."""


SNAPSHOTS = Codec(PoolSnapshot, HostSnapshot)
