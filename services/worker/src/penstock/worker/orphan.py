"""Whether this worker's executor is still there; told by the kernel, not by a message."""

from __future__ import annotations

import time
from pathlib import Path

from penstock.runtime.locks import is_held


class Orphan:
    """The executor holds an exclusive lock on ``executor.lock`` for as long as it lives.

    Args:
        run_dir: empty for a worker that was started without an executor.
        grace_seconds: a restarted executor has this long to come back.
    """

    def __init__(self, run_dir: str, grace_seconds: float) -> None:
        self._path = Path(run_dir) / "executor.lock" if run_dir else None
        self._grace_seconds = grace_seconds
        self._since: float | None = None

    def lapsed(self) -> bool:
        """True when the executor has been gone for longer than the grace."""
        if self._path is None or is_held(self._path):
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() - self._since >= self._grace_seconds
