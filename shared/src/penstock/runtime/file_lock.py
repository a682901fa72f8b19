"""Locks that a process holds on a file for as long as it lives, and that others only look at."""

from __future__ import annotations

import fcntl
from pathlib import Path

EXECUTOR_LOCK = "executor.lock"
"""In a host's run folder: held by its executor, looked at by its workers."""


def is_held(path: Path) -> bool:
    """Whether a process holds this lock exclusively.

    Probing takes the lock in shared mode for a moment.
    """
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
