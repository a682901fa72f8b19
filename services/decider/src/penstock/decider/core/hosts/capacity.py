"""The capacity of a host.

The reference formula: workers = floor(usable cores x free share / need), memory likewise, the
smaller wins. Free share is what the share ceiling leaves beside what *others* use: the workers'
own use is not counted against them. Two refinements keep a neighbour's noise from ending workers:

- cores: a busy neighbour forbids new workers, it does not remove planned ones;
- memory: planned workers may also use the reserve, new ones may not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from penstock.config.profiles import Profile
from penstock.decider.core.inputs import Rules
from penstock.events.snapshot import HostSnapshot, PoolSnapshot

_LEAST_CORES = 0.01
_LEAST_BYTES = 8 * 1024 * 1024
_SLACK = 1e-9
"""Relative tolerance: a sum of floats must not refuse what fits exactly."""


class Need(msgspec.Struct, frozen=True, gc=False):
    """The resources that one worker of a pool needs."""

    cpu_cores: float
    memory_bytes: float


class Budget(msgspec.Struct, frozen=True, gc=False):
    """The resources that all workers of a host may use together."""

    cpu_cores: float
    memory_bytes: float
    workers: float = math.inf


def worker_need(
    snapshot: PoolSnapshot | None, profile: Profile, hosts: Iterable[HostSnapshot] = ()
) -> Need:
    """Measured needs before the pool's settings; never so little that any number would fit.

    Args:
        snapshot: of the pool; None where nothing is measured.
        profile: the pool's settings.
        hosts: all there are, for pools whose jobs need memory of their own: what is kept free for
            them is no more than a share of the largest, so that a small one still takes a worker.
    """
    cores = snapshot.worker_cpu_cores if snapshot else None
    memory = snapshot.worker_memory_bytes if snapshot else None
    cores = profile.cpu_cores if cores is None else cores
    # a measured 0 would let any number of workers fit
    memory = memory or profile.memory_bytes
    memory = memory if memory > _LEAST_BYTES else _LEAST_BYTES
    if profile.jobs_memory_bytes:
        memory += profile.kept_for_jobs(max((host.memory_bytes for host in hosts), default=0))
    return Need(cores if cores > _LEAST_CORES else _LEAST_CORES, memory)


class Limits(NamedTuple):
    """The bounds of a host, by the formula.

    Attributes:
        start: for new workers.
        keep_bytes: the memory that planned workers may use together.
        crash_loops: pools whose workers keep ending at once there.
    """

    start: Budget
    keep_bytes: float
    crash_loops: tuple[str, ...] = ()


_MOST_REMEMBERED = 10_000
_limits_by_host: dict[str, tuple[HostSnapshot, Rules, Limits]] = {}
"""Of each host's last snapshot: it is looked at twice in a round, and in each round until the next
one comes."""


def limits(host: HostSnapshot, rules: Rules) -> Limits:
    """The bounds of a host, whatever is planned on it."""
    last = _limits_by_host.get(host.host)
    if last is not None and last[0] is host and last[1] is rules:
        return last[2]
    if len(_limits_by_host) >= _MOST_REMEMBERED:
        _limits_by_host.clear()
    calculated = _limits(host, rules)
    _limits_by_host[host.host] = host, rules, calculated
    return calculated


def start_budget(host: HostSnapshot, rules: Rules) -> Budget:
    """The bound for new workers, by the formula."""
    return limits(host, rules).start


def budget(host: HostSnapshot, rules: Rules, planned: Budget | Load) -> Budget:
    """The bound for all workers; ``planned`` is what the host was asked for before."""
    start, keep_bytes, _ = limits(host, rules)
    return Budget(
        max(start.cpu_cores, planned.cpu_cores),
        max(start.memory_bytes, min(planned.memory_bytes, keep_bytes)),
        start.workers,
    )


def without_others(host: HostSnapshot) -> HostSnapshot:
    """The host as if no process but its workers ran on it."""
    return msgspec.structs.replace(
        host,
        cpu_busy_cores=host.own_cpu_busy_cores,
        memory_used_bytes=host.own_memory_bytes,
    )


def carries(limit: Budget, need: Need) -> tuple[int, str]:
    """The number of such workers that fit into a budget, and the resource that bounds them."""
    fits = {
        "cores": limit.cpu_cores / need.cpu_cores,
        "memory": limit.memory_bytes / need.memory_bytes,
        "max_workers": limit.workers,
    }
    bound = min(fits, key=lambda name: fits[name])
    return math.floor(fits[bound] + _SLACK), bound


def _limits(host: HostSnapshot, rules: Rules) -> Limits:
    others_cores = max(host.cpu_busy_cores - host.own_cpu_busy_cores, 0.0)
    others_bytes = max(host.memory_used_bytes - host.own_memory_bytes, 0)
    # a host with a single core runs workers in spite of the reserve
    usable_cores = max(host.cpu_cores - rules.reserve_cpu_cores, 1.0)
    usable_bytes = max(host.memory_bytes - rules.reserve_memory_bytes, 0)
    free_memory = _free_share(rules.max_memory_share, others_bytes, host.memory_bytes)
    start = Budget(
        usable_cores * _free_share(rules.max_cpu_share, others_cores, host.cpu_cores),
        usable_bytes * free_memory,
        host.max_workers or math.inf,
    )
    crash_loops = tuple(name for name, workers in host.pools.items() if workers.crash_loop)
    return Limits(start, host.memory_bytes * free_memory, crash_loops)


def _free_share(ceiling: float, used: float, total: float) -> float:
    return max(ceiling - used / total, 0.0) if total > 0 else 0.0


class Load:
    """The resources that all workers of a host use together."""

    __slots__ = ("cpu_cores", "memory_bytes", "workers")

    def __init__(self) -> None:
        self.cpu_cores = self.memory_bytes = 0.0
        self.workers = 0

    def add(self, need: Need, count: int = 1) -> None:
        self.cpu_cores += need.cpu_cores * count
        self.memory_bytes += need.memory_bytes * count
        self.workers += count

    def exceeds(self, limit: Budget) -> bool:
        """By memory or count; cores never end workers."""
        return self.workers > limit.workers or self.memory_bytes > limit.memory_bytes * (1 + _SLACK)


class HostCapacity(Load):
    """A host while workers are being placed on it.

    Attributes:
        host: its name.
        limit: the bound for all workers on it.
        accepts: takes workers it did not have.
        keeps: goes on with those it has.
        crowded: what it was planned to carry before the round is more than that bound.
    """

    __slots__ = ("accepts", "crowded", "host", "keeps", "limit")

    def __init__(
        self, host: str, limit: Budget, *, accepts: bool, keeps: bool, crowded: bool = False
    ) -> None:
        self.cpu_cores = self.memory_bytes = 0.0
        self.workers = 0
        self.host, self.limit, self.accepts, self.keeps = host, limit, accepts, keeps
        self.crowded = crowded

    def hold(self, load: Load) -> None:
        """Starts from the load that stays whatever is placed now."""
        self.cpu_cores, self.memory_bytes = load.cpu_cores, load.memory_bytes
        self.workers = load.workers

    def fits(self, need: Need, *, count: int = 1, whatever_cores: bool = False) -> bool:
        cpu_cores = self.cpu_cores + need.cpu_cores * count
        memory_bytes = self.memory_bytes + need.memory_bytes * count
        return (
            self.workers + count <= self.limit.workers
            and memory_bytes <= self.limit.memory_bytes * (1 + _SLACK)
            and (whatever_cores or cpu_cores <= self.limit.cpu_cores * (1 + _SLACK))
        )

    def free(self, need: Need) -> int:
        """How many further workers of this need fit."""
        limit, slack = self.limit, 1 + _SLACK
        return max(
            math.floor(
                min(
                    (limit.cpu_cores * slack - self.cpu_cores) / need.cpu_cores,
                    (limit.memory_bytes * slack - self.memory_bytes) / need.memory_bytes,
                    limit.workers - self.workers,
                )
                + _SLACK
            ),
            0,
        )

    @property
    def overfull(self) -> bool:
        """See `exceeds`."""
        return self.exceeds(self.limit)

    @property
    def full_share(self) -> float:
        """Share of its memory budget that is taken; for choosing between hosts."""
        return self.memory_bytes / self.limit.memory_bytes if self.limit.memory_bytes > 0 else 1.0

    def copy(self) -> HostCapacity:
        """A copy to try placements on."""
        twin = HostCapacity(self.host, self.limit, accepts=self.accepts, keeps=self.keeps)
        twin.hold(self)
        return twin
