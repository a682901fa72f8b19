"""Worker processes, watched and signalled by pidfd: no exit is missed, no pid mistaken."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from penstock.operations.process_identity import start_ticks

log = logging.getLogger("penstock.executor")

_PR_SET_CHILD_SUBREAPER = 36
_CODE_PATIENCE_SECONDS = 0.25
"""How long the warm parent may take to report the exit code of a process that ended."""

OnExit = Callable[[str, int | None], None]


def become_subreaper() -> None:
    """Orphans below this process become its children, not those of process 1."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_strays(awaited: Collection[int | None]) -> None:
    """Collects ended children that no part of this process waits for.

    Args:
        awaited: process ids of those that are waited for.
    """
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in awaited:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def below(pid: int) -> list[int]:
    """Children; of many processes much quicker than to look at all that there are."""
    with suppress(OSError):  # it ended
        tasks = [Path(entry.path, "children") for entry in os.scandir(f"/proc/{pid}/task")]
        return [int(child) for task in tasks for child in task.read_text("ascii").split()]
    return []


def all_below(pid: int) -> list[int]:
    """Children, and theirs."""
    return [process for child in below(pid) for process in (child, *all_below(child))]


class _Watched:
    def __init__(self, worker: str, pid: int, pidfd: int, adopted: bool) -> None:
        self.worker, self.pid, self.pidfd, self.adopted = worker, pid, pidfd, adopted
        self.code: int | None = None
        self.waiting: asyncio.TimerHandle | None = None


class Processes:
    """The living workers of this host.

    Args:
        on_exit: called once for process with its exit code (negative for a signal), or None where
            it is not known (adopted workers are no children of this process).
    """

    def __init__(self, on_exit: OnExit) -> None:
        self._on_exit = on_exit
        self._watched: dict[str, _Watched] = {}

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._watched.values()]

    @property
    def by_worker(self) -> dict[str, int]:
        return {process.worker: process.pid for process in self._watched.values()}

    def watch(self, worker: str, pid: int, ticks: int | None = None) -> None:
        """Reports the end of a process from now on, also when it has ended already.

        Args:
            ticks: its start time as recorded; another process of the same pid counts as ended.
        """
        loop = asyncio.get_running_loop()
        pidfd = _open(pid, ticks)
        process = self._watched[worker] = _Watched(worker, pid, pidfd, adopted=ticks is not None)
        if pidfd < 0:
            loop.call_soon(self._ended, process)
        else:
            loop.add_reader(pidfd, self._ended, process)

    def reaped(self, pid: int, code: int) -> None:
        """The warm parent reaped a process."""
        for process in self._watched.values():
            if process.pid == pid and not process.adopted:
                process.code = code
                if process.waiting:
                    self._finish(process)
                return

    def signal(self, worker: str, number: int) -> None:
        """To the process; nothing happens when it has ended."""
        process = self._watched.get(worker)
        if process and process.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(process.pidfd, number)

    def terminate(self, worker: str) -> None:
        self.signal(worker, signal.SIGTERM)
        self.signal(worker, signal.SIGCONT)  # a stopped process would not handle it

    def kill(self, worker: str) -> None:
        """The process, and what it started in its own process group."""
        process = self._watched.get(worker)
        if process and process.pidfd >= 0 and not process.waiting:
            with suppress(OSError):
                if os.getpgid(process.pid) == process.pid:
                    os.killpg(process.pid, signal.SIGKILL)
            self.signal(worker, signal.SIGKILL)

    def close(self) -> None:
        """Stops watching; the processes live on."""
        loop = asyncio.get_running_loop()
        for process in self._watched.values():
            if process.waiting:
                process.waiting.cancel()
            if process.pidfd >= 0:
                loop.remove_reader(process.pidfd)
                os.close(process.pidfd)
        self._watched.clear()

    def _ended(self, process: _Watched) -> None:
        loop = asyncio.get_running_loop()
        if process.pidfd >= 0:
            loop.remove_reader(process.pidfd)
            process.code = _exit_code(process.pid) if process.code is None else process.code
        if process.adopted or process.code is not None:
            self._finish(process)
        else:
            # No child of this process: its warm parent reaps it, and its report is on the way.
            process.waiting = loop.call_later(_CODE_PATIENCE_SECONDS, self._finish, process)

    def _finish(self, process: _Watched) -> None:
        if process.waiting:
            process.waiting.cancel()
        if process.pidfd >= 0:
            os.close(process.pidfd)
        self._watched.pop(process.worker, None)
        self._on_exit(process.worker, process.code)


def _open(pid: int, ticks: int | None) -> int:
    """A descriptor of the process; -1 when it has ended, or is another than the recorded one."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return -1
    if ticks is None or start_ticks(pid) == ticks:
        return pidfd
    os.close(pidfd)
    return -1


def _exit_code(pid: int) -> int | None:
    """Of a child that this process inherited because its warm parent died before it."""
    try:
        reaped, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if reaped else None
