"""One executor a host: a lock that its workers see, and that ends with its process."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from penstock.config import ConfigError
from penstock.runtime.file_lock import EXECUTOR_LOCK

_PATIENCE_SECONDS = 1.0
"""Workers hold the lock for an instant when they look whether their executor lives."""


class HostTaken(ConfigError):
    """Another executor runs under this host's name here."""


def take(run_dir: Path, host: str) -> int:
    """Locks the run folder until the returned descriptor is closed; blocks for a second at most.

    Raises:
        HostTaken: another executor has it.
    """
    lock = os.open(run_dir / EXECUTOR_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise HostTaken(
                    f"an executor for host {host!r} already runs here (it holds "
                    f"{run_dir}/executor.lock); end it, or give this one another host.name"
                ) from None
        time.sleep(0.02)
