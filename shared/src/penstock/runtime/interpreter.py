"""Which folders Python imports from: the working directory comes last.

A file in the working directory must not stand in for an installed module: a user who runs a
command in a folder of another user would run that folder's ``nats.py``. Modules of jobs are still
found there, when no installed module has their name.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from pathlib import Path

RELOADING = signal.SIGHUP
"""Read the settings anew. A service blocks it from its first line until it handles it."""
PAUSING = (signal.SIGUSR1, signal.SIGUSR2)
"""Pause and resume. Penstock's processes block them from the first line until they handle them."""


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


def _here() -> list[str]:
    with suppress(OSError):  # removed by another process
        return [str(Path.cwd())]
    return []
