"""Whether this worker's executor is still there, and the end of a worker that is left alone.

The executor holds an exclusive lock on ``executor.lock`` for as long as it lives; the kernel
shows it, no message is needed. Without an executor a worker finishes its job and ends. Without an
executor *and* without a broker nothing that it does can be recorded, and no process is left to end
it, whatever its job, its loop or its libraries wait for: a thread of its own ends it, and a kernel
timer where that thread cannot run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.runtime.file_lock import EXECUTOR_LOCK, is_held
from penstock.worker.running import watchdog
from penstock.worker.running.watchdog import Watchdog

log = logging.getLogger("penstock.worker")

_POLL_SECONDS = 0.5
_LAST_SECONDS = 3.0
"""After its grace an abandoned worker has this long to end by itself."""
_CLOSING_SECONDS = 30.0
"""What a worker that has settled its jobs may take to let go of everything."""


class Orphan:
    """Looks after the executor.

    Args:
        run_dir: empty for a worker that was started without an executor.
        grace_seconds: a restarted executor, and the broker, have this long to come back.
    """

    def __init__(self, run_dir: str, grace_seconds: float) -> None:
        self._path = Path(run_dir) / EXECUTOR_LOCK if run_dir else None
        self._grace_seconds = grace_seconds
        self._since: float | None = None
        self._closed = threading.Event()
        self._watchdog: Watchdog | None = None

    def guard_process(self, connected: Callable[[], bool], abandoned: Callable[[], None]) -> None:
        """Ends this process when executor and broker are gone, or when the worker does not end.

        Only for a process that is one worker and nothing else: the kernel's timer kills it.

        Args:
            connected: whether the line to the broker stands; called in any thread.
            abandoned: called once in any thread, when both have been gone for the grace.
        """
        if self._path is not None:
            self._watchdog = Watchdog()
            watching = (self._path, self._watchdog, connected, abandoned)
            threading.Thread(target=self._watch, args=watching, name="orphan", daemon=True).start()

    def is_orphaned(self) -> bool:
        """True when the executor has been gone for longer than the grace."""
        if self._path is None or is_held(self._path):
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since >= self._grace_seconds

    def closing(self) -> None:
        """This worker has settled its jobs; whatever still hangs does not keep it alive."""
        self._closed.set()
        if self._watchdog is not None:
            self._watchdog.arm("closing", watchdog.now() + _CLOSING_SECONDS)

    def _watch(
        self,
        lock: Path,
        timer: Watchdog,
        connected: Callable[[], bool],
        abandoned: Callable[[], None],
    ) -> None:
        """In a thread: neither the loop nor the job's thread can keep it from looking.

        The kernel's timer is set when both are first seen gone, since C code that holds the
        interpreter may keep even this thread from looking again.
        """
        since: float | None = None
        while not self._closed.wait(_POLL_SECONDS):
            if connected() or is_held(lock):
                since = None
                timer.disarm("abandoned")
                continue
            now = watchdog.now()
            if since is None:
                since = now
                timer.arm("abandoned", now + self._grace_seconds + _LAST_SECONDS)
            if now - since >= self._grace_seconds:
                log.error("no executor and no broker for %.0f s: ending", now - since)
                with suppress(RuntimeError):  # the loop has just been closed
                    abandoned()
                return
