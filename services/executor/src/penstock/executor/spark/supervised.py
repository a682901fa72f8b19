"""Spark's keeper as its executor sees it: one is always there, and it outlives this process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from penstock.config import Settings
from penstock.executor.spark.supervisor import command
from penstock.runtime import children
from penstock.runtime.waiting import within
from penstock.runtime.workers.record import start_ticks

log = logging.getLogger("penstock.executor")

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 30.0
_STOP_SECONDS = 10.0


class _Record(msgspec.Struct, frozen=True):
    """Which process is the keeper; the start time tells it from a later one of the same id."""

    pid: int
    start_ticks: int


class KeptSpark:
    """Starts a keeper, or goes on with the one that an earlier executor of this host started."""

    def __init__(self, run_dir: Path, settings: Settings) -> None:
        self._run_dir, self._settings = run_dir, settings
        self._file = run_dir / "keeper.json"
        self._child: children.Child | None = None
        self._stopping = False
        self._lives = True
        """One of an earlier executor, or soon one of our own."""

    @property
    def pid(self) -> int | None:
        """Of the keeper that is our own child."""
        return self._child.pid if self._child else None

    def pids(self) -> list[int]:
        """Of the keeper and its Spark; empty when none is our own child."""
        if self._child is None:
            return []
        with suppress(psutil.Error):
            keeper = psutil.Process(self._child.pid)
            return [keeper.pid, *(each.pid for each in keeper.children(recursive=True))]
        return []

    @property
    def state(self) -> str:
        """``remote``, ``running``, ``unused``, or ``down`` where no keeper lives."""
        if self._settings.spark.remote:
            return "remote"
        if self._child is None:
            return "unused" if self._lives else "down"
        return "running" if len(self.pids()) > 1 else "unused"

    async def run(self) -> None:
        """Until cancelled; at once where a remote Spark makes a keeper needless."""
        if self._settings.spark.remote:
            return
        if (pidfd := self._living()) >= 0:
            log.info("Spark's keeper of an earlier executor is adopted")
            await _ended(pidfd)
        self._lives = False
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping:
            await self._keep_one()
            if self._stopping:
                return
            log.warning("Spark's keeper ended; another starts in %.1f s", pause)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)

    async def stop(self) -> None:
        """Ends the keeper and its Spark, whoever started it."""
        self._stopping = True
        if self._child:
            await self._child.stop(_STOP_SECONDS)
        elif (pidfd := self._living()) >= 0:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
            await within(_STOP_SECONDS, _ended(pidfd))
        self._file.unlink(missing_ok=True)

    async def _keep_one(self) -> None:
        argv, environment = command(self._run_dir, self._settings)
        try:
            child = self._child = children.start(
                argv, name="spark keeper", env=environment, parent_death_signal=0
            )
        except children.ChildFailed as error:
            log.error("%s", error)
            return
        record = _Record(pid=child.pid, start_ticks=start_ticks(child.pid) or 0)
        self._file.write_bytes(msgspec.json.encode(record))
        await child.ended()
        await child.stop()
        self._child = None

    def _living(self) -> int:
        """A descriptor of the recorded keeper; -1 when there is none."""
        with suppress(OSError, msgspec.DecodeError):
            found = msgspec.json.decode(self._file.read_bytes(), type=_Record)
            pidfd = os.pidfd_open(found.pid)
            if start_ticks(found.pid) == found.start_ticks:
                return pidfd
            os.close(pidfd)
        return -1


async def _ended(pidfd: int) -> None:
    """Waits until a process that need not be our child ended; closes its descriptor."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(pidfd, over.set)
    try:
        await over.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
