"""The folder `.penstock/`: its lock, and the address of the broker that `up` started."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.config import ConfigError
from penstock.runtime.local_broker import FOLDER, LOCK_FILE, URL_FILE


class AlreadyUp(ConfigError):
    """Another `penstock up` runs in this folder."""


def write_url(url: str, monitor_url: str, folder: Path = FOLDER) -> None:
    """Writes the address for the other commands of this folder, atomically."""
    write_private(folder / URL_FILE, f"{url}\n{monitor_url}\n")


def write_private(file: Path, text: str) -> None:
    """Writes what may hold a password, atomically, for this user only."""
    half = file.with_name(f"{file.name}.new")
    half.unlink(missing_ok=True)  # one left behind may have another mode
    half.touch(mode=0o600, exist_ok=False)
    half.write_text(text, "utf-8")
    half.replace(file)


@contextmanager
def held(folder: Path = FOLDER) -> Iterator[Path]:
    """Locks the folder for this process; the kernel releases it, whatever ends the process.

    Raises:
        AlreadyUp: another process holds it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyUp(f"'penstock up' already runs in {folder.resolve().parent}") from None
        (folder / URL_FILE).unlink(missing_ok=True)
        try:
            yield folder
        finally:
            (folder / URL_FILE).unlink(missing_ok=True)
