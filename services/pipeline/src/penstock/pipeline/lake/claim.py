"""The right to write to a lake: one run at a time, on any file system, whichever process dies.

A record in the lake names the holder, who renews it. Each holding has a number, its epoch, one more
than the last; the process that creates the file of an epoch first holds it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import psutil

from penstock.pipeline.core.holding import (
    BEAT_SECONDS,
    Holder,
    LakeTaken,
    Record,
    is_free,
    may_act,
)
from penstock.pipeline.lake.storage import Folder

log = logging.getLogger("penstock.pipeline")

_HELD = "_held"
_LOOK_SECONDS = 0.5
_BIRTH_SECONDS = 2.0
"""A process's birth is read from the wall clock, which may be set meanwhile."""


class Claim:
    """A holding of a lake, checked right before each write that others can see.

    Attributes:
        epoch: its number. No other process uses names with it.
    """

    def __init__(self, folder: Folder, epoch: int, renewed_at: float) -> None:
        self._folder, self.epoch, self._renewed_at = folder, epoch, renewed_at
        self._record = Record(holder=this_process(), epoch=epoch)
        self._over = threading.Event()

    def check(self) -> None:
        """Raises :class:`LakeTaken` where this run must not act: another one may be at it."""
        self.yield_to_newer()
        if not may_act(time.monotonic(), self._renewed_at):
            raise LakeTaken(self._folder.uri, self._record)

    def yield_to_newer(self) -> None:
        """Raises :class:`LakeTaken` where another run has taken the lake over."""
        if newer := _newest(self._folder, above=self.epoch):
            raise LakeTaken(self._folder.uri, _read(self._folder, newer) or self._record)

    def keep(self) -> None:
        """Renews the record until :meth:`stop`; for a thread."""
        while not self._over.wait(BEAT_SECONDS):
            try:
                if not self._renew():
                    log.error("the lake %s was taken over", self._folder.uri)
                    return
            except (
                Exception
            ) as error:  # a file system may be away for a while; check() ends the run
                log.warning("the hold on %s could not be renewed: %s", self._folder.uri, error)

    def _renew(self) -> bool:
        began = time.monotonic()
        if _newest(self._folder, above=self.epoch):
            return False
        self._record = msgspec.structs.replace(self._record, beats=self._record.beats + 1)
        self._folder.replace(_path(self.epoch), msgspec.json.encode(self._record))
        self._renewed_at = began
        return True

    def stop(self) -> None:
        """Ends :meth:`keep`."""
        self._over.set()

    def let_go(self) -> None:
        if not _newest(self._folder, above=self.epoch):
            last = msgspec.structs.replace(self._record, over=True)
            self._folder.replace(_path(self.epoch), msgspec.json.encode(last))


@contextmanager
def claimed(folder: Folder) -> Iterator[Claim]:
    """The lake for this block alone.

    Raises:
        LakeTaken: another run lives and writes to it.
    """
    claim = _take(folder)
    keeper = threading.Thread(target=claim.keep, name="lake-claim", daemon=True)
    keeper.start()
    try:
        yield claim
    finally:
        claim.stop()
        keeper.join()
        with suppress(
            Exception
        ):  # Java may be gone; the next run then sees that this process has ended
            claim.let_go()


def _take(folder: Folder) -> Claim:
    while True:
        newest = _newest(folder)
        if newest:
            _await_end(folder, newest)
        began = time.monotonic()
        record = Record(holder=this_process(), epoch=newest + 1)
        if folder.create(_path(newest + 1), msgspec.json.encode(record)):
            for epoch in _epochs(folder):
                if epoch <= newest:
                    folder.delete(_path(epoch))
            return Claim(folder, newest + 1, began)


def _await_end(folder: Folder, epoch: int) -> None:
    """Returns once the holder of ``epoch`` is known to be gone, or silent for a whole lease."""
    first, since = _read(folder, epoch), time.monotonic()
    while True:
        record = _read(folder, epoch)
        if is_free(record, time.monotonic() - since, record is not None and is_gone(record.holder)):
            return
        if record is not None and record != first:
            raise LakeTaken(folder.uri, record)
        time.sleep(_LOOK_SECONDS)


def this_process() -> Holder:
    return Holder(
        host=socket.gethostname(),
        pid=os.getpid(),
        place=_place(),
        born=psutil.Process().create_time(),
    )


def is_gone(holder: Holder) -> bool:
    """Whether this machine knows that the process has ended; False where it cannot know."""
    if holder.place != _place():
        return False
    try:
        process = psutil.Process(holder.pid)
        other = abs(process.create_time() - holder.born) > _BIRTH_SECONDS
        return bool(other or process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _place() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"


def _path(epoch: int) -> str:
    return f"{_HELD}/{epoch:09d}.json"


def _epochs(folder: Folder) -> list[int]:
    return [int(path[-14:-5]) for path, _ in folder.find(f"{_HELD}/?????????.json")]


def _newest(folder: Folder, above: int = 0) -> int:
    """The highest epoch above a number; 0 where there is none."""
    return max((epoch for epoch in _epochs(folder) if epoch > above), default=0)


def _read(folder: Folder, epoch: int) -> Record | None:
    try:
        return msgspec.json.decode(folder.read(_path(epoch)), type=Record)
    except Exception:  # gone, or being written just now; Hadoop's errors come as Java's
        return None
