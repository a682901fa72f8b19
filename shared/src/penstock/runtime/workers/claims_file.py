"""The messages that a worker holds, where its executor can read them once the worker is dead.

A memory-mapped file ``<run_dir>/workers/<worker>.claims`` of fixed slots, one for each message from
before it is claimed until it is settled. Reports name claims too, but come once a second: a job
that crashes its process would take along every job that was claimed since. A worker that runs
several jobs at a time marks those that it has begun, in the last byte of their slots.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_SLOT_BYTES = 512
_SLOTS = 4096
"""Two megabytes of address space; only slots that were used take memory."""
_FREE = 0
_BEGUN = 1


class Held(NamedTuple):
    """A message that a worker held last.

    Attributes:
        claim: its ack subject.
        begun: its job ran, in a worker that marks that.
    """

    job_id: str
    claim: str
    begun: bool


class Claimed:
    """The worker's side.

    Args:
        run_dir: the executor's; empty for a worker that was started without one.
    """

    def __init__(self, run_dir: str, worker: str) -> None:
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        if not run_dir:
            return
        path = _file(Path(run_dir), worker)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with path.open("w+b") as file:
            file.truncate(_SLOTS * _SLOT_BYTES)
            self._pages = mmap.mmap(file.fileno(), _SLOTS * _SLOT_BYTES)
        self._free = [slot * _SLOT_BYTES for slot in reversed(range(_SLOTS))]

    def hold(self, message: int, job_id: str, claim: str) -> None:
        """Notes a message; once more when it was delivered again, with another ack subject.

        What does not fit is left out: that claim returns when it lapses.

        Args:
            message: its sequence in the queue's stream.
            claim: its ack subject.
        """
        line = f"{job_id} {claim}\n".encode()
        if len(line) >= _SLOT_BYTES:
            return
        start = self._slots.get(message)
        if start is None:
            if not self._free:
                return
            start = self._slots[message] = self._free.pop()
            self._pages[start + _SLOT_BYTES - 1] = 0
        self._pages[start : start + len(line)] = line

    def begin(self, message: int) -> None:
        """Its job runs from now on; from any thread."""
        self._mark(message, _BEGUN)

    def end(self, message: int) -> None:
        """Its job has run; from any thread."""
        self._mark(message, 0)

    def _mark(self, message: int, mark: int) -> None:
        start = self._slots.get(message)
        if start is not None:
            self._pages[start + _SLOT_BYTES - 1] = mark

    def settle(self, message: int) -> None:
        """The message is not held any more."""
        start = self._slots.pop(message, None)
        if start is not None:
            self._pages[start] = _FREE
            self._free.append(start)


def read(run_dir: Path, worker: str) -> list[Held] | None:
    """What a worker held last; None when it noted nothing."""
    try:
        pages = _file(run_dir, worker).read_bytes()
    except OSError:
        return None
    return list(_lines(pages))


def _lines(pages: bytes) -> Iterator[Held]:
    for start in _used(pages):
        slot = pages[start : start + _SLOT_BYTES]
        line, end, _ = slot.partition(b"\n")
        job_id, _, claim = line.decode("ascii", "replace").partition(" ")
        if end and job_id and claim:
            yield Held(job_id, claim, slot[-1] == _BEGUN)


def _used(pages: bytes) -> Iterable[int]:
    return (at for at in range(0, len(pages), _SLOT_BYTES) if pages[at] != _FREE)


def remove(run_dir: Path, worker: str) -> None:
    with suppress(OSError):
        _file(run_dir, worker).unlink()


def _file(run_dir: Path, worker: str) -> Path:
    return run_dir / "workers" / f"{worker}.claims"
