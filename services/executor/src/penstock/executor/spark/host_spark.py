"""The host's Spark supervisor as its executor sees it: kept running, and outliving the executor."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.config import Settings
from penstock.executor.processes import all_below, below
from penstock.executor.spark.supervisor import command
from penstock.operations.process_identity import start_ticks
from penstock.runtime import children
from penstock.runtime.supervised import Backoff, Supervised
from penstock.runtime.tasks import within

log = logging.getLogger("penstock.executor")

_BACKOFF = Backoff(first_seconds=0.5, longest_seconds=30.0)
_STOP_SECONDS = 10.0
_RECORD = "keeper.json"
"""Written by earlier versions, too: an upgraded executor adopts the supervisor of the old one."""


class _Record(msgspec.Struct, frozen=True):
    """Which process is the supervisor; the start time excludes a later one of the same id."""

    pid: int
    start_ticks: int


class HostSpark:
    """Starts a supervisor, or goes on with that of an earlier executor of this host."""

    def __init__(self, run_dir: Path, settings: Settings) -> None:
        self._run_dir, self._settings = run_dir, settings
        self._file = run_dir / _RECORD
        name = "the Spark supervisor"
        self._supervised = Supervised(name, self._begin, log.warning, backoff=_BACKOFF)
        self._is_starting = True
        """Also while one of an earlier executor lives."""

    @property
    def pid(self) -> int | None:
        """Of the supervisor that is this executor's own child."""
        return self._supervised.pid

    def pids(self) -> list[int]:
        """Of the supervisor and its Spark; empty when none is this executor's own child."""
        return [] if self.pid is None else [self.pid, *all_below(self.pid)]

    @property
    def state(self) -> str:
        """``remote``, ``running``, ``unused``, or ``down`` where no supervisor lives."""
        if self._settings.spark.remote:
            return "remote"
        if self.pid is None:
            return "unused" if self._is_starting else "down"
        return "running" if below(self.pid) else "unused"

    async def run(self) -> None:
        """Until cancelled or stopped; returns at once where Spark is remote."""
        if self._settings.spark.remote:
            return
        if (pidfd := self._living()) >= 0:
            log.info("the Spark supervisor of an earlier executor is adopted")
            await _ended(pidfd)
        # From here on an absent child means that it is down.
        self._is_starting = False
        await self._supervised.keep()

    async def stop(self) -> None:
        """Ends the supervisor and its Spark, also one that an earlier executor started."""
        is_own = self.pid is not None
        await self._supervised.end(_STOP_SECONDS)
        if not is_own and (pidfd := self._living()) >= 0:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            await within(_STOP_SECONDS, _ended(pidfd))
        self._file.unlink(missing_ok=True)

    def _begin(self) -> children.Child:
        argv, environment = command(self._run_dir, self._settings)
        child = children.start(
            argv, name="spark supervisor", env=environment, parent_death_signal=0
        )
        record = _Record(pid=child.pid, start_ticks=start_ticks(child.pid) or 0)
        self._file.write_bytes(msgspec.json.encode(record))
        return child

    def _living(self) -> int:
        """A descriptor of the recorded supervisor; -1 when it does not live."""
        with suppress(OSError, msgspec.DecodeError):
            record = msgspec.json.decode(self._file.read_bytes(), type=_Record)
            pidfd = os.pidfd_open(record.pid)
            if start_ticks(record.pid) == record.start_ticks:
                return pidfd
            os.close(pidfd)
        return -1


async def _ended(pidfd: int) -> None:
    """Waits for the end of a process that need not be a child; closes its descriptor."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
