"""Which folders Python imports from: the working directory comes last.

A file in the working directory must not stand in for an installed module: a user who runs a
command in a folder of another user would run that folder's ``nats.py``. Modules of jobs are still
found there, when no installed module has their name.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

PAUSING = (signal.SIGUSR1, signal.SIGUSR2)
"""Pause and resume. Penstock's processes block them from the first line until they handle them."""
HELD_BACK = (*PAUSING, signal.SIGHUP)
"""All signals that are blocked so: these, and the one that reloads settings and job code."""


def module_command(module: str, *arguments: str) -> list[str]:
    """The command of a Penstock process that is started with ``python -m``.

    The process calls `working_directory_last` if it imports modules of jobs; ``-P`` alone keeps the
    working directory out.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def working_directory_last() -> None:
    """Imports from the working directory, after everything that is installed.

    What ``PYTHONPATH`` names stays where it is.
    """
    if not sys.flags.safe_path and sys.path and sys.path[0] in ("", *_here()):
        del sys.path[0]  # put there by ``python -m``
    if "" not in sys.path:
        sys.path.append("")


def has_terminal() -> bool:
    """Whether this process has a controlling terminal.

    SIGHUP asks a process to reload, unless it comes because the terminal was closed: then the
    process has none any more.
    """
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _here() -> list[str]:
    with suppress(OSError):  # removed by another process
        return [str(Path.cwd())]
    return []
