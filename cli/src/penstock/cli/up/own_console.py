"""The console of `penstock up`: whether it runs, at which port, and what a browser is to open."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from penstock.cli import service
from penstock.config import Settings
from penstock.runtime.paths import check_port, free_port

NAME = "console"
_FOLDER = "console"


def names(settings: Settings) -> tuple[str, ...]:
    """Its service, where it is installed and not switched off; else none."""
    return (NAME,) if settings.console.enabled and service.installed(NAME) else ()


def placed(settings: Settings, folder: Path) -> Settings:
    """The settings with a port that is free, and a folder for the console's files.

    A taken port is no reason for jobs not to run: another one is used.

    Args:
        settings: of this run.
        folder: of this `penstock up`.
    """
    console = settings.console
    if not console.folder:
        console = replace(console, folder=str(folder / _FOLDER))
    try:
        check_port(console.port)
    except OSError:
        console = replace(console, port=0)
    if not console.port:
        console = replace(console, port=free_port())
    return replace(settings, console=console)


def taken(configured: Settings, settings: Settings) -> str:
    """That another port is used than the settings say, as a sentence; empty where it is not."""
    named, used = configured.console.port, settings.console.port
    if not named or named == used or not names(settings):
        return ""
    return (
        f"port {named} of the console is taken, perhaps by the console of another project: the one "
        f"of this folder is at {url(settings)}; set console.port to a port of its own"
    )


def url(settings: Settings) -> str:
    """What a person opens."""
    console = settings.console
    scheme = "https" if console.tls_certificate_file else "http"
    host = f"[{console.address}]" if ":" in console.address else console.address
    return f"{scheme}://{host}:{console.port}"
