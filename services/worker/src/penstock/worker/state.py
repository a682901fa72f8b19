"""What a worker as a whole is doing: taking jobs, paused, or ending, and why."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

log = logging.getLogger("penstock.worker")

ORPHANED = "orphaned"
ABANDONED = "orphaned, and without a broker"
BROKEN = 70
"""Exit code of a worker that found an error of its own (EX_SOFTWARE)."""


class WorkerState:
    """Shared by all parts of a worker; used in its loop only.

    Args:
        changed: set whenever the worker may take jobs again, or has none left.

    Attributes:
        stopping: why the worker ends; empty while it does not.
        paused: no job is taken until :meth:`resume`.
        hurried: the running job is interrupted and given back when the worker ends.
        exit_code: of the process.
    """

    def __init__(self, changed: asyncio.Event) -> None:
        self._changed = changed
        self._request: asyncio.Task[Any] | None = None
        self.stopping = ""
        self.paused = self.hurried = False
        self.exit_code = 0

    @property
    def takes_jobs(self) -> bool:
        return not (self.paused or self.stopping)

    @property
    def was_left_alone(self) -> bool:
        """Whether it ends because its executor is lost."""
        return self.stopping in (ORPHANED, ABANDONED)

    def stop(self, reason: str) -> None:
        """The running job is finished, and no other is taken. The first reason stands."""
        if not self.stopping:
            self.stopping = reason
            log.info("ending: %s", reason)
        self.withdraw_request()
        self._changed.set()

    def pause(self) -> None:
        self.paused = True
        self.withdraw_request()

    def resume(self) -> None:
        self.paused = False
        self._changed.set()

    def requests(self, request: asyncio.Task[Any]) -> None:
        """``request`` asks the broker for jobs: it is cancelled when none may be taken any more."""
        self._request = request

    def withdraw_request(self) -> None:
        if self._request is not None:
            self._request.cancel()

    def broke(self, error: BaseException) -> None:
        """A part of the worker failed: it ends with the exit code :data:`BROKEN`."""
        self.exit_code = BROKEN
        self.stop(f"broken: {error!r}")
