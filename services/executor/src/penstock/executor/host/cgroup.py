"""What this process's control groups allow and use, version 1 and 2, nested ones included."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

_ROOT = Path("/")
_UNLIMITED = 1 << 60
"""Version 1 writes a number near 2^63 where there is no limit."""


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """Limits, and use against them; None where there is no limit.

    ``cpu_seconds`` and ``memory_used_bytes`` are of the group that sets the limit.
    """

    cpu_cores: float | None = None
    memory_bytes: int | None = None
    cpu_seconds: float | None = None
    memory_used_bytes: int | None = None


def allowance(root: Path = _ROOT) -> Allowance:
    """The tightest limits over this process's groups and their parents.

    Args:
        root: where ``proc/self/cgroup`` and ``sys/fs/cgroup`` are found.
    """
    cpu = min(_cpu_limits(root), default=None)
    memory = min(_memory_limits(root), default=None)
    return Allowance(
        cpu_cores=cpu[0] if cpu else None,
        cpu_seconds=_cpu_seconds(Path(cpu[1])) if cpu else None,
        memory_bytes=memory[0] if memory else None,
        memory_used_bytes=_memory_used(Path(memory[1])) if memory else None,
    )


def _cpu_limits(root: Path) -> Iterator[tuple[float, str]]:
    for folder in _folders(root, "cpu"):
        quota, period = (
            _words(folder / "cpu.max", 2)
            or (
                *_words(folder / "cpu.cfs_quota_us", 1),
                *_words(folder / "cpu.cfs_period_us", 1),
            )
            or ("max", "1")
        )
        if quota not in {"max", "-1"} and int(period) > 0:
            yield int(quota) / int(period), str(folder)


def _memory_limits(root: Path) -> Iterator[tuple[int, str]]:
    for folder in _folders(root, "memory"):
        limit = _words(folder / "memory.max", 1) or _words(folder / "memory.limit_in_bytes", 1)
        if limit and limit[0] != "max" and int(limit[0]) < _UNLIMITED:
            yield int(limit[0]), str(folder)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """The folders of a controller, from this process's group up to the mount."""
    mount = root / "sys/fs/cgroup"
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            base = mount / "unified" if (mount / "unified").is_dir() else mount
        elif controller in controllers.split(","):
            base = mount / controller if (mount / controller).is_dir() else mount / controllers
        else:
            continue
        here = base / path.lstrip("/")
        # inside a container the path may be the host's: then the mount itself is this group
        while here != base:
            if here.is_dir():
                yield here
            here = here.parent
        yield base


def _cpu_seconds(folder: Path) -> float | None:
    for line in _lines(folder / "cpu.stat"):
        if line.startswith("usage_usec "):
            return int(line.split()[1]) / 1e6
    accounting = Path(re.sub("/cgroup/cpu(?=/|$)", "/cgroup/cpuacct", str(folder), count=1))
    used = _words(folder / "cpuacct.usage", 1) or _words(accounting / "cpuacct.usage", 1)
    return int(used[0]) / 1e9 if used else None


def _memory_used(folder: Path) -> int | None:
    """Memory that cannot be reclaimed at once: use less the file pages that are inactive."""
    used = _words(folder / "memory.current", 1) or _words(folder / "memory.usage_in_bytes", 1)
    if not used:
        return None
    stat = dict(line.split(None, 1) for line in _lines(folder / "memory.stat"))
    idle = stat.get("total_inactive_file") or stat.get("inactive_file") or "0"
    return max(0, int(used[0]) - int(idle))


def _words(file: Path, count: int) -> tuple[str, ...]:
    """The first words of a file, all ``count`` of them or none."""
    words = tuple(" ".join(_lines(file)).split()[:count])
    return words if len(words) == count else ()


def _lines(file: Path) -> list[str]:
    with suppress(OSError):
        return file.read_text("ascii", "replace").splitlines()
    return []
