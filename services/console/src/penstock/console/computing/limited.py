"""Becomes a command that has its own limits, and that dies with the console.

``python -P -m penstock.console.computing.limited PARENT MEMORY CPU FILE ARGUMENT…`` gives this
process a limit of memory (bytes of addresses), CPU time (seconds) and of any file that it writes
(bytes), yields to others, and then becomes ``python -P ARGUMENT…``. It is a program of its own, as
nothing may run between fork and exec in a process with threads.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_NICER = 10
_FIRST_TO_GO = b"800"
"""Where memory is short the kernel ends this process, not the console beside it."""


def main(arguments: list[str]) -> None:
    """Never returns."""
    parent, memory, cpu_seconds, file_bytes = map(int, arguments[:4])
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_bytes(_FIRST_TO_GO)
    os.nice(_NICER)
    limits = (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CORE, 0),
    )
    for kind, most in limits:
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
    os.execv(sys.executable, [sys.executable, "-P", *arguments[4:]])  # noqa: S606 - no shell


if __name__ == "__main__":
    main(sys.argv[1:])
