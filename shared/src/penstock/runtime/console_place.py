"""Where the console of this installation listens on this machine, and how commands find it.

`penstock up` may choose another port or folder than the settings say. It hands these on beside the
settings, so that a reload still takes over what the file says later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from penstock.config import Settings
from penstock.config.load import CONSOLE_FOLDER_VARIABLE, CONSOLE_PORT_VARIABLE
from penstock.runtime import paths
from penstock.runtime.local_broker import is_up, read_private, run_folder

_FILE = "console.json"
_EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - compared with, not bound to


class Place(msgspec.Struct, frozen=True):
    """Where a console listens.

    Attributes:
        url: without a path.
        pid: its process; one that has ended is not believed.
    """

    url: str
    pid: int


def handed_on(configured: Settings, chosen: Settings) -> dict[str, str]:
    """The variables by which `penstock up` hands on to its console what it chose.

    Args:
        configured: as the settings say.
        chosen: with the port and the folder of this run.
    """
    named, used = configured.console, chosen.console
    return {
        CONSOLE_PORT_VARIABLE: f"{named.port}:{used.port}" if named.port != used.port else "",
        CONSOLE_FOLDER_VARIABLE: used.folder if named.folder != used.folder else "",
    }


def port(settings: Settings, environment: Mapping[str, str] = os.environ) -> int:
    """The port to listen at: of the settings, or what `penstock up` uses in place of that one."""
    named, _, used = environment.get(CONSOLE_PORT_VARIABLE, "").partition(":")
    replaces = named == str(settings.console.port) and used.isdecimal()
    return int(used) if replaces else settings.console.port


def folder(settings: Settings, environment: Mapping[str, str] = os.environ) -> Path:
    """For the console's files: of the settings, else of `penstock up`, else of this machine."""
    chosen = settings.console.folder or environment.get(CONSOLE_FOLDER_VARIABLE)
    return Path(chosen) if chosen else paths.run_dir(settings) / "console"


def remember(settings: Settings, url: str) -> None:
    """Keeps the address of this process's console, for commands of this user."""
    file = paths.run_dir(settings) / _FILE
    half = file.with_name(f"{file.name}.{os.getpid()}")
    half.unlink(missing_ok=True)
    half.touch(mode=0o600, exist_ok=False)
    half.write_bytes(msgspec.json.encode(Place(url, os.getpid())))
    half.replace(file)


def find(settings: Settings) -> str:
    """The address of a console that runs on this machine for this folder; empty for none."""
    with suppress(OSError, UnicodeDecodeError, msgspec.MsgspecError, ProcessLookupError):
        place = msgspec.json.decode(read_private(_run_dir(settings) / _FILE), type=Place)
        os.kill(place.pid, 0)
        return place.url
    return ""


def as_configured(settings: Settings) -> str:
    """The address that the settings say, as this machine reaches it."""
    console = settings.console
    scheme = "https" if console.tls_certificate_file else "http"
    address = "127.0.0.1" if console.address in _EVERYWHERE else console.address
    return f"{scheme}://{f'[{address}]' if ':' in address else address}:{console.port}"


def _run_dir(settings: Settings) -> Path:
    """As :func:`penstock.runtime.paths.run_dir` and `penstock up` choose it; nothing is made."""
    if settings.host.run_dir:
        return Path(settings.host.run_dir)
    if is_up():
        place, *names = run_folder()
        return place.joinpath(*names)
    place, name = paths.user_folder()
    return place / name / f"{settings.prefix}-{settings.host.name}"
