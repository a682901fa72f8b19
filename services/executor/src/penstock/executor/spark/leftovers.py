"""All Spark Workers that run on this host, found by their command line.

``java @<run_dir>/spark-workers/<worker>/java.args``: a Worker is known by the folder that was made
for it before it was started, so none is missed, however its executor died.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from penstock.executor.processes import below

FOLDER = "spark-workers"
ARGUMENTS = "java.args"


def running(run_dir: Path) -> dict[str, int]:
    """Process ids by worker."""
    folder, workers = run_dir / FOLDER, {}
    for entry in os.scandir("/proc"):
        file = _arguments(int(entry.name)) if entry.name.isdecimal() else None
        if file and file.name == ARGUMENTS and file.parent.parent == folder:
            workers[file.parent.name] = int(entry.name)
    return workers


def send(run_dir: Path, number: int, to: Callable[[int], bool] = lambda _: True) -> int:
    """Signals the Workers whose process id ``to`` accepts; returns how many run."""
    workers = running(run_dir)
    for worker, pid in workers.items():
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            if to(pid) and running(run_dir).get(worker) == pid:  # it is still the same process
                signal.pidfd_send_signal(pidfd, number)
            os.close(pidfd)
    return len(workers)


def has_executors(pid: int) -> bool:
    """Whether a Worker has processes of applications below it."""
    return bool(below(pid))


def has_session(pids: Iterable[int]) -> bool:
    """Whether one of these has a classic Spark session: PySpark's Java, below it."""
    return any(b"pyspark-shell" in _words(child) for pid in pids for child in below(pid))


def _arguments(pid: int) -> Path | None:
    """The argument file of a Java; None of any other process."""
    words = _words(pid)
    argument = words[1] if len(words) == 2 else b""  # Java and its argument file, nothing else
    return Path(os.fsdecode(argument[1:])) if argument.startswith(b"@") else None


def _words(pid: int) -> list[bytes]:
    with suppress(OSError):  # it ended, or is another user's
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    return []
