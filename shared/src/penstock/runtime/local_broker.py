"""The broker of the `penstock up` that runs in this working directory: how clients find it.

Commands and programs share this look-up. The address may hold a password, so its file is believed
only where no other account can have written or read it, and messages never quote it.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from penstock.bus.access import is_loopback
from penstock.config import ConfigError, NoBrokerKnown, Settings
from penstock.runtime.file_lock import is_held
from penstock.runtime.paths import user_folder

FOLDER = Path(".penstock")
URL_FILE, LOCK_FILE = "nats-url", "up.lock"
_MAX_BYTES = 8192
MOMENT_SECONDS = 5.0
"""How long a program waits for a `penstock up` that does not hold the folder's lock yet."""
_LOOK_SECONDS = 0.1


def reachable(settings: Settings) -> Settings:
    """The settings with a broker in them: the configured one, else that of `penstock up` here.

    Where the configured address is that of `penstock up` here, its token is in them, too.

    Raises:
        NoBrokerKnown: neither is there.
        ConfigError: the file with the address is not private to this user.
    """
    if not (configured := settings.nats.url.strip(" ,")):
        return with_url(settings, *find_url())
    with suppress(ConfigError):  # none runs here
        url, monitor_url = find_url()
        if _is_same(configured, url):
            return with_url(settings, url, monitor_url)
    return settings


async def awaited(settings: Settings) -> Settings:
    """As :func:`reachable`, but waits for a `penstock up` that starts in this working directory.

    Where none has begun to, for a moment only: a program may be started together with it.

    Raises:
        NoBrokerKnown: none was ready within ``nats.connect_timeout_seconds``.
        ConfigError: as :func:`reachable`.
    """
    start, timeout = time.monotonic(), settings.nats.connect_timeout_seconds
    while True:
        try:
            return reachable(settings)
        except NoBrokerKnown:
            waited = time.monotonic() - start
            if waited >= (timeout if is_up() else min(timeout, MOMENT_SECONDS)):
                raise
        await asyncio.sleep(_LOOK_SECONDS)


def _is_same(configured: str, url: str) -> bool:
    """Whether a configured address without credentials is that of `penstock up`, which has a token.

    So that one settings file serves `penstock up`, which starts a broker there, and its clients.
    """
    try:
        wanted = urlsplit(configured if "://" in configured else f"nats://{configured}")
        port, is_local = wanted.port or 4222, is_loopback(wanted.hostname or "")
    except ValueError:
        return False
    own = urlsplit(url)
    return (
        wanted.scheme == "nats"
        and wanted.username is None
        and is_local
        and own.username is not None
        and port == own.port
    )


def find_url(folder: Path = FOLDER) -> tuple[str, str]:
    """The addresses of the local `penstock up`: its broker, and that broker's monitoring page.

    Raises:
        NoBrokerKnown: no `penstock up` runs here, or it is still starting.
        ConfigError: the file with the address is not private to this user.
    """
    if not is_up(folder):
        raise NoBrokerKnown(
            "no broker is known: no 'penstock up' runs in this folder and nats.url is empty; "
            "start 'penstock up' or give --nats-url (a program: nats.url in penstock.toml, or "
            "PENSTOCK_NATS__URL)"
        )
    try:
        text = read_private(folder / URL_FILE)
    except FileNotFoundError:
        raise NoBrokerKnown("'penstock up' is still starting here; try again") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder / URL_FILE} cannot be read: {error}; give nats.url") from None
    url, _, monitor_url = text.strip().partition("\n")
    return url, monitor_url


def with_url(settings: Settings, url: str, monitor_url: str) -> Settings:
    return replace(settings, nats=replace(settings.nats, url=url, monitor_url=monitor_url))


def is_up(folder: Path = FOLDER) -> bool:
    """Whether a living `penstock up` holds this folder."""
    try:
        return is_held(folder / LOCK_FILE)
    except OSError:
        return False


def run_folder(folder: Path = FOLDER) -> tuple[Path, str, str]:
    """The folder in which this installation's executor keeps its sockets and records.

    In the user's runtime folder, since a socket's path must be short and not every file system of
    a working directory takes sockets; the same after each start, so that workers are found again.

    Returns:
        The place and the names below it, for :func:`penstock.runtime.private_folders.private_dir`.
    """
    mark = blake2b(str(folder.resolve()).encode(), digest_size=6).hexdigest()
    return *user_folder(), f"up-{mark}"


def read_private(path: Path) -> str:
    """A small file that only this user can have written. Raises OSError, UnicodeDecodeError."""
    # Checked on the open descriptor: a path could be exchanged between the check and the reading.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if (
            not stat.S_ISREG(status.st_mode)
            or status.st_uid != os.getuid()
            or status.st_mode & 0o077
        ):
            raise PermissionError(
                f"expected a file of user {os.getuid()} with mode 600, found owner "
                f"{status.st_uid}, mode {stat.S_IMODE(status.st_mode):o}"
            )
        return file.read(_MAX_BYTES).decode("utf-8")
