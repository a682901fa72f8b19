"""One process of another system, and what was last seen of it."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from penstock.config import Pool
from penstock.config.foreign import filled_path, ready_of
from penstock.config.profiles import Profile
from penstock.events.worker import WorkerReport
from penstock.executor.core.activity import Activity
from penstock.executor.foreign import kept, tree
from penstock.executor.foreign.kept import Kept
from penstock.executor.foreign.output import Output
from penstock.executor.foreign.readiness import Probe
from penstock.runtime.children import Child

_MEMORY_SECONDS = 5.0
"""Memory costs about a millisecond a process to read."""


class Consumer:
    """A process that handles messages of another system.

    Args:
        name: of the worker that it is.
        pool: name of its pool.
        state: what is kept about it on disk.
        child: the process, where this executor started it.

    Attributes:
        kept: as ``state``, now.
        is_ready: it takes messages; once seen, it stays so.
        is_stopped: a signal stopped it.
        below: process ids of what it has started, at the last look.
        cpu_seconds: used by it and by those.
        memory_bytes: likewise, at most some seconds ago.
    """

    def __init__(
        self,
        name: str,
        pool: str,
        pid: int,
        state: Kept,
        output: Output,
        child: Child | None = None,
    ) -> None:
        self.name, self.pool, self.pid = name, pool, pid
        self.kept, self.output, self.child = state, output, child
        self.is_ready, self.is_stopped = state.ready, False
        self.below: tuple[int, ...] = ()
        self.cpu_seconds, self.memory_bytes = 0.0, 0
        self._number, self._started_at = 0, 0.0
        self._activity, self._looked_at = Activity(), 0.0
        self._memory_at = 0.0
        self._probe: Probe | None = None

    def watch_for(self, pool: Pool | None, host: str, started_at: float) -> None:
        """Which sign shows that it is ready.

        Args:
            pool: None for one that is gone: then none is awaited.
            host: name of this host.
            started_at: POSIX seconds.
        """
        self._started_at = started_at
        if pool is None:
            return
        ready = ready_of(pool.ready)
        if ready.kind == "file":
            path = filled_path(ready.value, worker=self.name, host=host, pool=pool.name)
            ready = replace(ready, value=path)
        self._probe = Probe(ready, self.output.new_lines, started_at)

    @property
    def leaving(self) -> bool:
        """It was asked to end."""
        return self.kept.drain_until is not None

    @property
    def state(self) -> str:
        """As in a `WorkerReport`."""
        if self.leaving:
            return "draining"
        if not self.is_ready:
            return "starting"
        return "busy" if self._activity.is_busy(self._looked_at) else "idle"

    def keep(self, run_dir: Path, **changes: object) -> None:
        """Changes what is kept about it, here and on disk."""
        self.kept = replace(self.kept, **changes)
        kept.update(run_dir, self.name, **changes)

    def look(self, at: float, now: float, full: bool) -> None:
        """Looks at the process; reads files, and so runs beside the executor's loop.

        Args:
            at: POSIX seconds.
            now: monotonic seconds.
            full: also at its use of processor and memory.
        """
        processes = tree.look(self.pid)
        if processes is None:
            return
        self.is_stopped, self.below = processes.is_stopped, processes.pids[1:]
        if not self.is_ready and self._probe:
            self.is_ready = self._probe.is_ready(processes.pids, at)
        if full:
            self._looked_at, self.cpu_seconds = now, processes.cpu_seconds
            self._activity.see(processes.cpu_seconds, now)
            if now - self._memory_at >= _MEMORY_SECONDS:
                self._memory_at, self.memory_bytes = now, processes.memory_bytes()
            self.output.bound()

    def see_printed(self) -> None:
        """Compares what the process printed with the sign that is awaited; on the main thread.

        Raises:
            SlowPattern: it takes too long, and is not tried again.
        """
        if not self.is_ready and self._probe:
            self.is_ready = self._probe.has_printed_sign()

    def beyond(self, profile: Profile, at: float) -> str:
        """What it exceeds, for people; empty where it keeps within its limits.

        Args:
            at: POSIX seconds.
        """
        if self.leaving:
            return ""
        most, oldest = profile.limit_memory_bytes, profile.limit_seconds
        if most and self.memory_bytes > most:
            return f"used {self.memory_bytes >> 20} MiB, limit_memory_bytes is {most >> 20} MiB"
        if oldest and at - self._started_at > oldest:
            return f"is older than limit_seconds = {oldest:g}"
        return ""

    def report(self, host: str, slots: int, at: float) -> WorkerReport:
        """The next report about it.

        Args:
            slots: how many messages it handles at a time.
            at: POSIX seconds.
        """
        self._number += 1
        return WorkerReport(
            worker=self.name,
            host=host,
            pool=self.pool,
            pid=self.pid,
            state=self.state,
            stopping_because="asked to end" if self.leaving else "",
            number=self._number,
            at=at,
            started_at=self._started_at,
            cpu_seconds=self.cpu_seconds,
            memory_bytes=self.memory_bytes,
            slots=slots,
            slots_used=slots if self.state == "busy" else 0,
        )
