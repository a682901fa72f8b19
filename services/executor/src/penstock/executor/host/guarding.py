"""What the guards have in common: processes that outlive an executor and end what it left."""

from __future__ import annotations

import argparse
import logging
import os
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.runtime import children
from penstock.runtime.file_lock import EXECUTOR_LOCK, is_held
from penstock.runtime.interpreter import module_command
from penstock.runtime.supervised import Backoff, Supervised
from penstock.telemetry import lines

log = logging.getLogger("penstock.executor")

POLL_SECONDS = 0.2
_BACKOFF = Backoff(first_seconds=5.0, longest_seconds=5.0)


async def keep(
    module: str, name: str, run_dir: Path, grace_seconds: float, further: Sequence[str] = ()
) -> None:
    """Keeps a guard beside this process; cancelled, it leaves the guard to its task.

    Args:
        module: which is run.
        name: of the guard, for the log.
        grace_seconds: how long another executor may take to come.
        further: arguments of this guard alone.
    """
    argv = [
        *module_command(module),
        *("--run-dir", str(run_dir), "--executor", str(os.getpid())),
        *("--grace-seconds", str(grace_seconds), *further),
        *lines.flags(),
    ]
    begin = partial(children.start, argv, name=name, parent_death_signal=0)
    await Supervised(name, begin, log.warning, backoff=_BACKOFF).keep()


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """The arguments that each guard takes."""
    options = argparse.ArgumentParser(prog=f"python -m {module}", description=description)
    options.add_argument("--run-dir", type=Path, required=True, help="the host's run folder")
    options.add_argument("--executor", type=int, required=True, help="its process id; the parent")
    options.add_argument("--grace-seconds", type=float, required=True, help="for another executor")
    options.add_argument("--log-json", action="store_true", help="log one JSON object a line")
    return options


def wait_for_end(pid: int) -> None:
    """Returns when the executor beside which this guard runs has ended."""
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        if os.getppid() == pid:  # else it had died before, and this is another one
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll()
        os.close(pidfd)


def is_followed(run_dir: Path, seconds: float, has_any: Callable[[], bool]) -> bool:
    """Whether another executor came in time; True also where nothing is left to be claimed."""
    lock = run_dir / EXECUTOR_LOCK
    return until(lambda: is_held(lock) or not has_any(), seconds)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
