"""Jobs that end their own process, and jobs that do not."""

from __future__ import annotations

import os
import signal
import time

from penstock.jobs import job


@job(queue="mail")
def segfault() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@job(queue="mail", tries=1)
def segfault_once() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@job(queue="mail", max_lost=2)
def leave(code: int) -> None:
    os._exit(code)


@job(queue="mail")
def good(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


@job(queue="mail")
def wait_then_leave(path: str) -> None:
    """Waits until a file is there, then ends its process."""
    while not os.path.exists(path):  # noqa: PTH110
        time.sleep(0.005)
    os._exit(3)
