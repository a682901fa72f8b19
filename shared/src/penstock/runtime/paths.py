"""Places on this machine: free ports, sockets, the run folder, folders that do not stay."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.config import Settings
from penstock.runtime.private_folders import private_dir

LOOPBACK = "127.0.0.1"
_PREFIX = "penstock-"
_OWNER = ".owner"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_MAX_SOCKET_BYTES = 107
"""Of a Unix socket's address in Linux, without its closing zero byte."""


def free_port() -> int:
    """A loopback TCP port without a listener (right now: use it soon)."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def check_port(port: int, address: str = LOOPBACK) -> None:
    """Raises OSError if a server cannot listen on this TCP port right now."""
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        probe.bind((address, port))


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """An address by which to bind or connect to the Unix socket, however long its path is.

    It may go by a descriptor of the folder: use it inside the block, and for a listener stay there,
    since servers look at their address again.

    Raises:
        OSError: the folder is not there.
    """
    if len(os.fsencode(path)) <= _MAX_SOCKET_BYTES:
        yield str(path)
        return
    with _opened(path.parent, os.O_PATH | os.O_DIRECTORY) as folder:
        yield f"/proc/self/fd/{folder}/{path.name}"


def run_dir(settings: Settings) -> Path:
    """The folder for this host's sockets and records of living workers; made if it is not there.

    ``host.run_dir`` if set, else ``penstock-<uid>/<prefix>-<host>`` below the user's runtime folder
    (``XDG_RUNTIME_DIR``) or the temporary folder.

    Raises:
        NotPrivate: the folder belongs to another user, or others may write into it.
    """
    if settings.host.run_dir:
        # Absolute: processes of other systems are found again by this path in their environment,
        # and those of another project with the same relative path are not this host's to end.
        configured = Path(settings.host.run_dir).absolute()
        return private_dir(configured.parent, configured.name)
    return private_dir(*user_folder(), f"{settings.prefix}-{settings.host.name}")


def user_folder() -> tuple[Path, str]:
    """Parent and name of this user's run folders, see :func:`private_folders.private_dir`."""
    place = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return place, f"{_PREFIX}{os.getuid()}"


def cache_dir() -> Path:
    """The folder for what can be made again; made if it is not there.

    ``penstock`` below ``XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        OSError: it cannot be made, or others may write into it. RuntimeError: there is no home.
    """
    place = os.environ.get("XDG_CACHE_HOME")
    return private_dir(Path(place) if place else Path.home() / ".cache", "penstock")


@contextmanager
def temporary_dir() -> Iterator[Path]:
    """A folder that is removed at the end.

    Its owner holds a lock in it; what an owner left behind that was killed is removed by the next.
    """
    _sweep(Path(tempfile.gettempdir()))
    unlocked = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    with (unlocked / _OWNER).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = unlocked.rename(unlocked.with_name(unlocked.name[1:]))  # now it may be swept
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Follows no links in ``place``, where others may write."""
    with suppress(OSError), _opened(place, _FOLDER) as above:
        for name in [entry.name for entry in place.iterdir()]:
            if name.startswith(_PREFIX):
                with suppress(OSError), _opened(name, _FOLDER | os.O_NOFOLLOW, above) as folder:
                    _remove_left(above, name, folder)


def _remove_left(above: int, name: str, folder: int) -> None:
    if os.fstat(folder).st_uid != os.getuid():
        return
    with _opened(_OWNER, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW, folder) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(name, ignore_errors=True, dir_fd=above)


@contextmanager
def _opened(path: Path | str, flags: int, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
