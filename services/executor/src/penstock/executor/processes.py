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

from penstock.runtime.workers.record import start_ticks

log = logging.getLogger("penstock.executor")

_PR_SET_CHILD_SUBREAPER = 36
_CODE_PATIENCE_SECONDS = 0.25
"""How long the warm parent may take to tell the exit code of a process that ended."""

OnExit = Callable[[str, int | None], None]


def become_subreaper() -> None:
    """Orphans below this process become its children, not those of process 1."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_strays(known: Collection[int | None]) -> None:
    """Collects ended children that nobody waits for; ``known`` ones are left to who does."""
    with suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in known:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)


def below(pid: int) -> list[int]:
    """Children; of many processes much quicker than to look at all that there are."""
    with suppress(OSError):  # it ended
        tasks = [Path(entry.path, "children") for entry in os.scandir(f"/proc/{pid}/task")]
        return [int(child) for task in tasks for child in task.read_text("ascii").split()]
    return []


class _Watched:
    def __init__(self, worker: str, pid: int, pidfd: int, adopted: bool) -> None:
        self.worker, self.pid, self.pidfd, self.adopted = worker, pid, pidfd, adopted
        self.code: int | None = None
        self.waiting: asyncio.TimerHandle | None = None


class Processes:
    """The living workers of this host.

    Args:
        on_exit: called once for each with its exit code (negative for a signal), or None where
            there was nobody to tell it (adopted workers are not our children).
    """

    def __init__(self, on_exit: OnExit) -> None:
        self._on_exit = on_exit
        self._watched: dict[str, _Watched] = {}

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self._watched.values()]

    @property
    def by_worker(self) -> dict[str, int]:
        return {each.worker: each.pid for each in self._watched.values()}

    def watch(self, worker: str, pid: int, ticks: int | None = None) -> None:
        """Reports the end of a process from now on, also when it has ended already.

        Args:
            ticks: its start time as recorded; another process of the same pid counts as ended.
        """
        loop = asyncio.get_running_loop()
        pidfd = _open(pid, ticks)
        each = self._watched[worker] = _Watched(worker, pid, pidfd, adopted=ticks is not None)
        if pidfd < 0:
            loop.call_soon(self._ended, each)
        else:
            loop.add_reader(pidfd, self._ended, each)

    def told(self, pid: int, code: int) -> None:
        """The warm parent reaped a process."""
        for each in self._watched.values():
            if each.pid == pid and not each.adopted:
                each.code = code
                if each.waiting:
                    self._finish(each)
                return

    def signal(self, worker: str, number: int) -> None:
        """To the process; nothing happens when it has ended."""
        each = self._watched.get(worker)
        if each and each.pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(each.pidfd, number)

    def terminate(self, worker: str) -> None:
        self.signal(worker, signal.SIGTERM)
        self.signal(worker, signal.SIGCONT)  # a stopped process would not hear it

    def kill(self, worker: str) -> None:
        """The process, and what it started in its own process group."""
        each = self._watched.get(worker)
        if each and each.pidfd >= 0 and not each.waiting:
            with suppress(OSError):
                if os.getpgid(each.pid) == each.pid:
                    os.killpg(each.pid, signal.SIGKILL)
            self.signal(worker, signal.SIGKILL)

    def close(self) -> None:
        """Stops watching; the processes live on."""
        loop = asyncio.get_running_loop()
        for each in self._watched.values():
            if each.waiting:
                each.waiting.cancel()
            if each.pidfd >= 0:
                loop.remove_reader(each.pidfd)
                os.close(each.pidfd)
        self._watched.clear()

    def _ended(self, each: _Watched) -> None:
        loop = asyncio.get_running_loop()
        if each.pidfd >= 0:
            loop.remove_reader(each.pidfd)
            each.code = _exit_code(each.pid) if each.code is None else each.code
        if each.adopted or each.code is not None:
            self._finish(each)
        else:
            each.waiting = loop.call_later(_CODE_PATIENCE_SECONDS, self._finish, each)

    def _finish(self, each: _Watched) -> None:
        if each.waiting:
            each.waiting.cancel()
        if each.pidfd >= 0:
            os.close(each.pidfd)
        self._watched.pop(each.worker, None)
        self._on_exit(each.worker, each.code)


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
    """Of a child that became ours because its warm parent died before it."""
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if found else None
