"""The folder `.penstock/`: the store of our own broker, and where it listens."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from msgspec.structs import replace

from penstock.config import ConfigError, Settings
from penstock.runtime.locks import is_held
from penstock.runtime.paths import user_folder

FOLDER = Path(".penstock")
_URL, _LOCK = "nats-url", "up.lock"


class AlreadyUp(ConfigError):
    """Another `penstock up` runs in this folder."""


def find_url(folder: Path = FOLDER) -> tuple[str, str]:
    """Where the broker of the `penstock up` of this working directory listens, and is monitored.

    Raises:
        ConfigError: none runs here.
    """
    if is_up(folder):
        try:
            url, _, monitor_url = (folder / _URL).read_text("utf-8").strip().partition("\n")
            return url, monitor_url
        except OSError:
            raise ConfigError("'penstock up' is still starting here; try again") from None
    raise ConfigError(
        "no broker is known: no 'penstock up' runs in this folder and nats.url is empty; "
        "start 'penstock up' or give --nats-url"
    )


def with_url(settings: Settings, url: str, monitor_url: str) -> Settings:
    return replace(settings, nats=replace(settings.nats, url=url, monitor_url=monitor_url))


def write_url(url: str, monitor_url: str, folder: Path = FOLDER) -> None:
    """Tells the other commands of this folder. Whole or not at all."""
    half = folder / f"{_URL}.new"
    half.touch(mode=0o600)  # an address may hold a password
    half.write_text(f"{url}\n{monitor_url}\n", "utf-8")
    half.replace(folder / _URL)


def run_folder(folder: Path = FOLDER) -> tuple[Path, str, str]:
    """Where the executor of this folder's installation keeps its sockets and records.

    In the user's runtime folder, since a socket's path must be short and not every file system of
    a working directory takes sockets; the same after each start, so that workers are found again.

    Returns:
        The place and the names below it, for :func:`penstock.runtime.private.private_dir`.
    """
    mark = blake2b(str(folder.resolve()).encode(), digest_size=6).hexdigest()
    return *user_folder(), f"up-{mark}"


def is_up(folder: Path = FOLDER) -> bool:
    """Whether a living `penstock up` holds this folder."""
    try:
        return is_held(folder / _LOCK)
    except OSError:
        return False


@contextmanager
def held(folder: Path = FOLDER) -> Iterator[Path]:
    """Takes the folder for this process; the kernel gives it back, whatever ends the process.

    Raises:
        AlreadyUp: another has it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyUp(f"'penstock up' already runs in {folder.resolve().parent}") from None
        (folder / _URL).unlink(missing_ok=True)
        try:
            yield folder
        finally:
            (folder / _URL).unlink(missing_ok=True)
