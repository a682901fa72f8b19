"""This host: what it has, what is used, and how much of that by this executor's workers."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from penstock.executor.host import cgroup
from penstock.executor.processes import below

_SAMPLE_SECONDS = 0.5
"""Shorter spans give no CPU figure: the kernel counts in hundredths of a second."""
_MEMORY_SECONDS = 5.0
"""Proportional memory costs about a millisecond a process to read."""
_NOTHING: Mapping[int, int] = {}


class HostSize(msgspec.Struct, frozen=True, kw_only=True):
    """What processes here may use: cores and bytes."""

    cpu_cores: float
    memory_bytes: int


class HostUse(msgspec.Struct, frozen=True, kw_only=True):
    """What is used now; ``own`` is the part of this executor's workers."""

    cpu_busy_cores: float = 0.0
    memory_used_bytes: int = 0
    own_cpu_busy_cores: float = 0.0
    own_memory_bytes: int = 0


def host_size() -> HostSize:
    """The machine, cut down to what affinity and control groups leave of it."""
    allowed = cgroup.allowance()
    cores = float(len(os.sched_getaffinity(0)))
    memory = int(psutil.virtual_memory().total)
    return HostSize(
        cpu_cores=min(cores, allowed.cpu_cores or cores),
        memory_bytes=min(memory, allowed.memory_bytes or memory),
    )


class UseMeter:
    """Measures use between calls; asked more often than it makes sense, it repeats itself.

    Args:
        counts_other_cpu: cores that other programs use count as used.
    """

    def __init__(self, counts_other_cpu: bool = True) -> None:
        self.counts_other_cpu = counts_other_cpu
        self._use = HostUse()
        self._at = 0.0
        self._busy_seconds = 0.0
        self._own_seconds: dict[int, float] = {}
        self._own_bytes: dict[int, tuple[float, int]] = {}

    def measure(
        self,
        pids: Collection[int],
        serving: Collection[int] = (),
        beside: Mapping[int, int] = _NOTHING,
    ) -> HostUse:
        """Use since the last measurement.

        Args:
            pids: living workers of this executor.
            serving: what works for them (Spark); its cores are theirs, its memory is overhead.
            beside: by worker, the bytes that are kept free for what its jobs start.
        """
        now = time.monotonic()
        span = now - self._at
        if span < _SAMPLE_SECONDS:
            return self._use
        allowed = cgroup.allowance()
        busy = _busy_seconds() if allowed.cpu_seconds is None else allowed.cpu_seconds
        own = dict(_cpu_seconds({*pids, *serving}))
        first = self._at == 0.0
        own_cores = 0.0 if first else self._own_since(own) / span
        busy_cores = 0.0 if first else max(0.0, busy - self._busy_seconds) / span
        self._use = HostUse(
            cpu_busy_cores=busy_cores if self.counts_other_cpu else own_cores,
            own_cpu_busy_cores=own_cores,
            memory_used_bytes=_memory_used(allowed),
            own_memory_bytes=self._own_memory(pids, beside, now),
        )
        self._at, self._busy_seconds, self._own_seconds = now, busy, own
        return self._use

    def _own_since(self, own: dict[int, float]) -> float:
        """CPU seconds of the workers since last time; a new one's count from its birth."""
        return sum(seconds - self._own_seconds.get(pid, 0.0) for pid, seconds in own.items())

    def _own_memory(self, pids: Collection[int], beside: Mapping[int, int], now: float) -> int:
        """Each worker's share of memory, pages that it shares with others divided by their number.

        What its jobs started is its own as far as it was reckoned with: else it would count twice.
        Read anew every 5 s a worker: what they share with their warm parent must not count often.
        """
        sizes = {pid: old for pid, old in self._own_bytes.items() if pid in pids}
        for pid in pids:
            if pid not in sizes or now - sizes[pid][0] > _MEMORY_SECONDS:
                started = min(_bytes_below(pid), beside[pid]) if pid in beside else 0
                sizes[pid] = (now, proportional_bytes(pid) + started)
        self._own_bytes = sizes
        return sum(size for _, size in sizes.values())


def _busy_seconds() -> float:
    times = psutil.cpu_times()
    return float(sum(times[:3]) + getattr(times, "irq", 0) + getattr(times, "softirq", 0))


def _cpu_seconds(pids: Collection[int]) -> Iterator[tuple[int, float]]:
    for pid in pids:
        with suppress(psutil.Error):
            times = psutil.Process(pid).cpu_times()
            yield pid, times.user + times.system + times.children_user + times.children_system


def _memory_used(allowed: cgroup.Allowance) -> int:
    if allowed.memory_used_bytes is not None:
        return allowed.memory_used_bytes
    memory = psutil.virtual_memory()
    return int(memory.total - memory.available)


def _bytes_below(pid: int) -> int:
    """Of all that a process started, and those that they did."""
    return sum(proportional_bytes(child) + _bytes_below(child) for child in below(pid))


def proportional_bytes(pid: int) -> int:
    """Memory of a process, pages that it shares divided by their users; 0 when it has ended."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text("ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0
