"""What a worker runs, where its executor can read it while no thread of the worker gets on.

A page of memory that both share, the file ``<run_dir>/workers/<worker>.pulse``: when the worker's
loop last looked after its claims, and the claim of the job that runs. Written without a system
call, so that it costs a job nothing to speak of.
"""

from __future__ import annotations

import mmap
import struct
import time
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.runtime.workers.assignment import Assignment

_BYTES = 1024
_BEAT = struct.Struct("<d")
_END = b"\n"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """``beat_at``: monotonic seconds, the same clock for all processes.

    ``job_id`` and ``claim``, its ack subject: of the job begun last, which may have ended.
    """

    beat_at: float
    job_id: str
    claim: str


class Pulse:
    """The worker's side.

    Args:
        run_dir: the executor's.
    """

    def __init__(self, run_dir: Path, worker: str) -> None:
        place = _file(run_dir, worker)
        place.parent.mkdir(mode=0o700, exist_ok=True)
        with place.open("w+b") as file:
            file.truncate(_BYTES)
            self._page = mmap.mmap(file.fileno(), _BYTES)
        self.beat()

    def beat(self) -> None:
        """The loop looks after what is held."""
        _BEAT.pack_into(self._page, 0, time.monotonic())

    def begin(self, job_id: str, claim: str) -> None:
        """This job runs from now on; in the job's thread."""
        written = f"{job_id} {claim}".encode() + _END
        if len(written) <= _BYTES - _BEAT.size:
            self._page[_BEAT.size : _BEAT.size + len(written)] = written


def pulse_of(assignment: Assignment) -> Pulse | None:
    """A worker's; None for one without an executor."""
    if not assignment.run_dir:
        return None
    return Pulse(Path(assignment.run_dir), assignment.worker)


def read(run_dir: Path, worker: str) -> Reading | None:
    """What a worker wrote; None when it has not."""
    try:
        page = _file(run_dir, worker).read_bytes()
    except OSError:
        return None
    line, end, _ = page[_BEAT.size :].partition(_END)
    if len(page) != _BYTES or not end:
        return None
    job_id, _, claim = line.decode("ascii", "replace").partition(" ")
    return Reading(beat_at=_BEAT.unpack_from(page)[0], job_id=job_id, claim=claim)


def beat_at(run_dir: Path, worker: str) -> float | None:
    """When a worker's loop last looked after its claims, monotonic seconds; None: it never did."""
    try:
        page = _file(run_dir, worker).read_bytes()
    except OSError:
        return None
    return float(_BEAT.unpack_from(page)[0]) if len(page) == _BYTES else None


def remove(run_dir: Path, worker: str) -> None:
    with suppress(OSError):
        _file(run_dir, worker).unlink()


def _file(run_dir: Path, worker: str) -> Path:
    return run_dir / "workers" / f"{worker}.pulse"
