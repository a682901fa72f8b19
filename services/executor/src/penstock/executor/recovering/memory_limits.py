"""Kills workers whose job uses too much memory and that cannot end it themselves.

A worker looks at its own memory four times a second and ends the job. It cannot while C code holds
its interpreter, or when memory grows faster than that: then its executor kills it, which the job is
charged with as with any lost worker.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping
from pathlib import Path

from penstock.config import Settings
from penstock.config.topology import pools
from penstock.executor.core.facts import Condemned
from penstock.executor.core.worker import Phase, Worker

_PAGE = resource.getpagesize()
_MARGIN_SECONDS = 2.0
"""Beyond the grace that an interrupted job has, which its worker sees to."""
_FAR_BEYOND = 1.5
"""So many times the limit, at two looks in a row: it is killed without waiting for its worker."""


class MemoryLimits:
    """Looks at the workers of pools with a ``limit_job_memory_bytes``.

    Args:
        settings: of the host.
        learn: takes what was seen.
        resident_bytes: memory in use of a process; 0 when it has ended.
    """

    def __init__(
        self,
        settings: Settings,
        learn: Callable[[Condemned], None],
        resident_bytes: Callable[[int], int] | None = None,
    ) -> None:
        self._learn = learn
        self._resident_bytes = resident_bytes or _resident_bytes
        self._over_since: dict[str, float] = {}
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Takes the limits of these settings from now on."""
        self._limits = {
            name: pool.profile.limit_job_memory_bytes
            for name, pool in pools(settings).items()
            if pool.profile.limit_job_memory_bytes and pool.kind != "spark" and not pool.is_foreign
        }
        self._patience_seconds = settings.jobs.cancel_grace_seconds + _MARGIN_SECONDS

    def look(self, workers: Mapping[str, Worker], pids: Mapping[str, int], now: float) -> None:
        """One look at all workers with a limit; at most one a second is enough.

        Args:
            workers: of this host, by name.
            pids: of their processes.
            now: monotonic seconds.
        """
        if not self._limits:
            return
        over_since: dict[str, float] = {}
        for name, worker in tuple(workers.items()):
            limit, pid = self._limits.get(worker.pool), pids.get(name)
            if not limit or pid is None or worker.phase is Phase.STARTING or worker.killed:
                continue
            used = self._resident_bytes(pid)
            if used <= limit:
                continue
            since = over_since[name] = self._over_since.get(name, now)
            far_beyond = used > _FAR_BEYOND * limit and since < now
            if far_beyond or now - since > self._patience_seconds:
                detail = (
                    f"used {used >> 20} MiB, limit_job_memory_bytes of its pool allows "
                    f"{limit >> 20} MiB"
                )
                self._learn(Condemned(worker=name, because="memory-limit", detail=detail))
        self._over_since = over_since


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0
