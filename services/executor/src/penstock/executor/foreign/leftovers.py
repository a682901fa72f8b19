"""Foreign processes that no executor watches, found by a mark in their environment.

Each process is started with ``PENSTOCK_RUN_DIR`` and ``PENSTOCK_WORKER``, which what it starts
inherits: none is missed, however its executor or its own parent died, and whichever process group
it has moved to.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from penstock.config.foreign import signal_number
from penstock.config.foreign_pools import KILL_SECONDS
from penstock.executor.foreign import kept
from penstock.executor.foreign.kept import Kept

log = logging.getLogger("penstock.executor")

_RUN_DIR, _WORKER = "PENSTOCK_RUN_DIR", "PENSTOCK_WORKER"
_WORKER_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_PARENT = 1
"""Field of proc(5) ``stat``, counted from behind the command's closing bracket."""


def mark(run_dir: Path, worker: str) -> dict[str, str]:
    """The variables by which a process is found again."""
    return {_RUN_DIR: str(run_dir), _WORKER: worker}


def running(run_dir: Path) -> dict[str, set[int]]:
    """Process ids by worker, of all that these and their children are."""
    workers: dict[str, set[int]] = {}
    for pid, worker in _marked(run_dir):
        workers.setdefault(worker, set()).add(pid)
    return workers


def tops(pids: Collection[int]) -> list[int]:
    """Those that none of the others has started."""
    return [pid for pid in pids if _parent(pid) not in pids]


def to_ask(state: Kept, pids: Collection[int]) -> list[int]:
    """Those of a worker's processes to ask to end: the consumer itself, where it still runs.

    A consumer asks its children itself. A signal to them, such as TERM to RQ's work horse, would
    end them in the middle of a message; those that it left behind mostly end after it.
    """
    if state.pid is None:  # its executor died in the instant in which it was started
        return tops(pids)
    return [pid for pid in pids if pid == state.pid]


def send(run_dir: Path, worker: str, pids: Collection[int], number: int) -> None:
    """Signals processes as far as they are still this worker's."""
    for pid in pids:
        with suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            if _worker_of(pid, run_dir) == worker:
                signal.pidfd_send_signal(pidfd, number)
            os.close(pidfd)


class Ending:
    """Ends what is left of one worker: its drain signal, its time, the signal ``then``, KILL.

    Children that lost their consumer have the same time, and are not asked.
    One that was asked to end before is not asked again: some systems take a second signal for an
    order to end at once.
    """

    def __init__(self, run_dir: Path, worker: str) -> None:
        self._run_dir, self._worker = run_dir, worker
        self._kept = kept.read(run_dir, worker) or Kept()
        self._until = self._kept.drain_until
        self._then_at: float | None = None

    def step(self, pids: Collection[int]) -> bool:
        """Does what is due; True when nothing is left.

        Args:
            pids: of the worker's processes, by :func:`running`.
        """
        now, drain = time.monotonic(), self._kept.drain
        if not pids:
            kept.remove(self._run_dir, self._worker)
            return True
        if self._until is None:
            self._until = now + drain.seconds
            kept.update(self._run_dir, self._worker, drain_until=self._until)
            consumers = to_ask(self._kept, pids)
            self._send(consumers, signal_number(drain.signal))
            self._send(consumers, signal.SIGCONT)  # a stopped process would not handle it
        elif self._then_at is None and now >= self._until:
            log.warning("worker %s did not end in time: %s", self._worker, drain.then)
            self._then_at = now
            self._send(tops(pids), signal_number(drain.then))
        if self._then_at is not None and now >= self._then_at + KILL_SECONDS:
            self._send(pids, signal.SIGKILL)
        return False

    def _send(self, pids: Collection[int], number: int) -> None:
        send(self._run_dir, self._worker, pids, number)


def _marked(run_dir: Path) -> Iterator[tuple[int, str]]:
    for entry in os.scandir("/proc"):
        if entry.name.isdecimal() and (worker := _worker_of(int(entry.name), run_dir)):
            yield int(entry.name), worker


def _worker_of(pid: int, run_dir: Path) -> str:
    """Empty for a process that is none of these, or another user's.

    Processes may change their own variables: what is no name of a worker leads to no file.
    """
    with suppress(OSError):
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if f"{_RUN_DIR}={run_dir}".encode() in variables:
            head = f"{_WORKER}=".encode()
            names = (text.removeprefix(head) for text in variables if text.startswith(head))
            worker = next(names, b"").decode("ascii", "replace")
            return worker if _WORKER_NAME.fullmatch(worker) else ""
    return ""


def _parent(pid: int) -> int:
    with suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
        return int(stat.rpartition(")")[2].split()[_PARENT])
    return 0
