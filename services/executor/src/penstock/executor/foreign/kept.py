"""What is kept about a foreign process on disk, for its next executor and for the guard.

``<run_dir>/foreign-workers/<worker>/state.json`` is written before the process is started, so that
whatever comes upon the process later can end it as its system wants.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from penstock.config.foreign import Drain

FOLDER = "foreign-workers"
_FILE = "state.json"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One process.

    Attributes:
        drain: how it is ended.
        pid: its process id; None until it was started.
        ready: it has been seen to take messages.
        drain_until: when its time to end is over, monotonic seconds, which are the same for all
            processes; None while it was not asked to end.
    """

    drain: Drain = Drain()
    pid: int | None = None
    ready: bool = False
    drain_until: float | None = None


def write(run_dir: Path, worker: str, kept: Kept) -> None:
    """Whole or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = run_dir / FOLDER / worker
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    half = folder / f".{_FILE}.new"
    half.write_bytes(msgspec.json.encode(kept))
    half.replace(folder / _FILE)


def update(run_dir: Path, worker: str, **changes: object) -> None:
    """Changes some fields; a full disk leaves the rest as it was."""
    with suppress(OSError):
        write(run_dir, worker, replace(read(run_dir, worker) or Kept(), **changes))


def read(run_dir: Path, worker: str) -> Kept | None:
    """None where nothing, or nothing readable, is kept of this worker."""
    try:
        return msgspec.json.decode((run_dir / FOLDER / worker / _FILE).read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None


def remove(run_dir: Path, worker: str) -> None:
    """Forgets a process that has ended."""
    shutil.rmtree(run_dir / FOLDER / worker, ignore_errors=True)


def names(run_dir: Path) -> list[str]:
    """The workers of which something is kept."""
    return sorted(entry.name for entry in (run_dir / FOLDER).glob("*"))
